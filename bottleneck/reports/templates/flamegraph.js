(function () {
  "use strict";
  var margin = 10, row = 18, character = 6.6, tolerance = 1e-6, passedOn = 0.9;

  // In a file of its own the controls stand inside the graph, in a page around it.
  function start(svg) {
    var area = svg.closest(".flamegraph-area") || svg;
    var boxes = Array.prototype.slice.call(svg.querySelectorAll(".box"));
    var reset = area.querySelector(".reset"), search = area.querySelector(".search"), share = area.querySelector(".share");
    var controls = area.querySelector(".controls"), folding = area.querySelector(".fold");
    var size = svg.viewBox.baseVal, height = size.height, fluid = area !== svg;
    var all = { left: 0, width: 1, level: 0 }, view = all, current = boxes[0], deepest = 0;

    boxes.forEach(function (box) {
      var data = box.dataset;
      box.place = { left: +data.left, width: +data.width, level: +data.depth };
      box.caller = boxes[+data.caller];
      deepest = Math.max(deepest, +data.depth);
      box.setAttribute("role", "button");
      box.setAttribute("tabindex", box === current ? 0 : -1);
      box.addEventListener("click", function () { take(box); zoom(box.place); });
    });
    svg.setAttribute("role", "group");
    svg.addEventListener("keydown", function (event) {
      var found = press(event.key);
      if (!found) { return; }
      event.preventDefault();
      take(found);
    });

    // A library's function that only passes on to another one of a library is folded into its caller.
    function fold(wanted) {
      var highest = 0;
      boxes.forEach(function (box) {
        var caller = box.caller;
        box.folded = wanted && !!caller && isLibrary(box) && isLibrary(caller) && box.place.width >= passedOn * caller.place.width;
        box.place.level = caller ? caller.place.level + (box.folded ? 0 : 1) : 0;
        highest = Math.max(highest, box.place.level);
      });
      if (fluid) { svg.setAttribute("viewBox", "0 " + (deepest - highest) * row + " " + size.width + " " + (height - (deepest - highest) * row)); }
      zoom(all);
    }

    function zoom(place) {
      view = place;
      boxes.forEach(draw);
      reset.classList.toggle("hidden", view.level === 0);
    }

    function draw(box) {
      var place = box.place, inner = size.width - 2 * margin;
      var left = Math.max(place.left, view.left);
      var right = Math.min(place.left + place.width, view.left + view.width);
      var width = (right - left) / view.width * inner;
      var shown = !box.folded && right - left > tolerance && width >= 0.4;
      box.classList.toggle("hidden", !shown);
      box.classList.toggle("faded", place.level < view.level);
      if (!shown) { return; }
      var x = margin + (left - view.left) / view.width * inner, y = height - margin - (place.level + 1) * row;
      var rect = box.querySelector("rect"), text = box.querySelector("text");
      rect.setAttribute("x", x);
      rect.setAttribute("y", y);
      rect.setAttribute("width", Math.max(width - 0.5, 0.2));
      text.setAttribute("x", x + 4);
      text.setAttribute("y", y + 13);
      text.textContent = fit(box.dataset.label, width - 6);
    }

    // Up to the widest callee, down to the caller, left and right along the row.
    function press(key) {
      if (key === "Enter" || key === " ") { zoom(current.place); return current; }
      if (key === "Escape") { zoom(all); return current; }
      if (key === "ArrowDown") { return caller(current) || current; }
      if (key === "ArrowUp") {
        return boxes.filter(function (box) { return isShown(box) && caller(box) === current; }).sort(wider)[0] || current;
      }
      if (key !== "ArrowLeft" && key !== "ArrowRight") { return null; }
      var along = boxes.filter(function (box) { return isShown(box) && box.place.level === current.place.level; });
      along.sort(function (a, b) { return a.place.left - b.place.left; });
      return along[along.indexOf(current) + (key === "ArrowLeft" ? -1 : 1)] || current;
    }

    function take(box) {
      current.setAttribute("tabindex", -1);
      box.setAttribute("tabindex", 0);
      current = box;
      box.focus({ preventScroll: true });
    }

    function look(wanted) {
      wanted = (wanted || "").toLowerCase();
      var spans = [];
      boxes.forEach(function (box) {
        var hit = wanted !== "" && +box.dataset.depth > 0 && box.dataset.label.toLowerCase().indexOf(wanted) >= 0;
        box.classList.toggle("found", hit);
        if (hit) { spans.push([box.place.left, box.place.left + box.place.width]); }
      });
      share.textContent = wanted === "" ? "" : "found: " + (100 * union(spans)).toFixed(1) + " % of the samples";
    }

    // As many units as the page has room for, so that letters keep their size.
    function fill() {
      var width = svg.clientWidth;
      if (width > 0 && width !== size.width) {
        svg.setAttribute("viewBox", "0 " + size.y + " " + width + " " + size.height);
        boxes.forEach(draw);
      }
    }

    reset.addEventListener("click", function () { zoom(all); });
    if (fluid) {
      search.addEventListener("input", function () { look(search.value); });
      folding.addEventListener("change", function () { fold(folding.checked); });
      svg.classList.add("fluid");
      controls.classList.remove("hidden");
      new ResizeObserver(fill).observe(svg);  // its part may be folded now
      fold(true);
      fill();
    } else {
      search.addEventListener("click", function () { look(window.prompt("Part of a function or file name:", "")); });
      search.classList.remove("hidden");
    }
    // For links: flamegraph.svg#search=decode
    var asked = /[#&]search=([^&]*)/.exec(window.location.hash);
    if (asked) {
      var part = svg.closest("details");
      if (part) { part.open = true; }
      look(decoded(asked[1]));
    }
  }

  function isLibrary(box) { return box.classList.contains("library"); }

  function isShown(box) { return !box.classList.contains("hidden"); }

  function wider(a, b) { return b.place.width - a.place.width; }

  // The caller that is shown.
  function caller(box) {
    var found = box.caller;
    while (found && found.folded) { found = found.caller; }
    return found;
  }

  function decoded(text) {
    try { return decodeURIComponent(text); } catch (error) { return text; }
  }

  function fit(label, width) {
    var room = Math.floor(width / character);
    if (label.length <= room) { return label; }
    return room >= 3 ? label.slice(0, room - 1) + "\u2026" : "";
  }

  // A function inside another that was found too counts once.
  function union(spans) {
    var covered = 0, end = 0;
    spans.sort(function (a, b) { return a[0] - b[0]; });
    spans.forEach(function (span) {
      covered += Math.max(0, span[1] - Math.max(span[0], end));
      end = Math.max(end, span[1]);
    });
    return covered;
  }

  Array.prototype.forEach.call(document.querySelectorAll("svg.flamegraph"), start);
}());
