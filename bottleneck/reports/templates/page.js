(function () {
  "use strict";
  function each(selector, act) { Array.prototype.forEach.call(document.querySelectorAll(selector), act); }

  // Of a link to a part that is folded; browsers that do this by themselves lose nothing.
  function reveal() {
    var part = document.getElementById(window.location.hash.slice(1));
    if (part && part.tagName === "DETAILS") { part.open = true; part.scrollIntoView(); }
  }

  function unfold(all) { each("details.part", function (part) { part.open = all; }); }

  // Of a diff, the lines as they are to be.
  function pasted(code) {
    var lines = code.textContent.replace(/\n$/, "").split("\n");
    if (!code.classList.contains("diff")) { return lines.join("\n"); }
    return lines.filter(function (line) { return line[0] !== "-"; }).map(function (line) { return line.slice(1); }).join("\n");
  }

  function copy(button) {
    var code = button.parentNode.querySelector("code");
    function done(text) {
      button.textContent = text;
      window.setTimeout(function () { button.textContent = "Copy"; }, 2000);
    }
    function select() {
      window.getSelection().selectAllChildren(code);
      done("Press Ctrl+C");
    }
    if (!navigator.clipboard) { select(); return; }
    navigator.clipboard.writeText(pasted(code)).then(function () { done("Copied"); }, select);
  }

  each(".copy", function (button) {
    button.classList.remove("hidden");
    button.addEventListener("click", function () { copy(button); });
  });
  each(".unfold", function (button) {
    var all = false;
    button.classList.remove("hidden");
    button.addEventListener("click", function () {
      all = !all;
      unfold(all);
      button.textContent = all ? "Fold all" : "Unfold all";
    });
  });
  window.addEventListener("hashchange", reveal);
  window.addEventListener("beforeprint", function () { unfold(true); });
  reveal();
}());
