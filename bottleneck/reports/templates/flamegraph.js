(function () {
  "use strict";
  var svg = document.documentElement;
  var boxes = Array.prototype.slice.call(document.querySelectorAll("#boxes .box"));
  var reset = document.getElementById("reset");
  var search = document.getElementById("search");
  var found = document.getElementById("found");
  var total = svg.viewBox.baseVal.width, margin = 10, inner = total - 2 * margin, character = 6.6;
  var view = { left: 0, width: 1, depth: 0 };
  var tolerance = 1e-6;

  boxes.forEach(function (box) {
    var data = box.dataset;
    box.place = { left: +data.left, width: +data.width, depth: +data.depth };
    box.addEventListener("click", function () { zoom(box.place); });
  });

  function zoom(place) {
    view = place;
    boxes.forEach(draw);
    reset.classList.toggle("hidden", view.depth === 0);
  }

  function draw(box) {
    var place = box.place;
    var left = Math.max(place.left, view.left);
    var right = Math.min(place.left + place.width, view.left + view.width);
    var width = (right - left) / view.width * inner;
    var shown = right - left > tolerance && width >= 0.4;
    box.classList.toggle("hidden", !shown);
    box.classList.toggle("faded", place.depth < view.depth);
    if (!shown) { return; }
    var x = margin + (left - view.left) / view.width * inner;
    var rect = box.querySelector("rect"), text = box.querySelector("text");
    rect.setAttribute("x", x);
    rect.setAttribute("width", Math.max(width - 0.5, 0.2));
    text.setAttribute("x", x + 4);
    text.textContent = fit(box.dataset.label, width - 6);
  }

  function fit(label, width) {
    var room = Math.floor(width / character);
    if (label.length <= room) { return label; }
    return room >= 3 ? label.slice(0, room - 1) + "\u2026" : "";
  }

  function look(wanted) {
    wanted = (wanted || "").toLowerCase();
    var spans = [];
    boxes.forEach(function (box) {
      var hit = wanted !== "" && box.place.depth > 0 && box.dataset.label.toLowerCase().indexOf(wanted) >= 0;
      box.classList.toggle("found", hit);
      if (hit) { spans.push([box.place.left, box.place.left + box.place.width]); }
    });
    found.textContent = wanted === "" ? "" : "found: " + (100 * union(spans)).toFixed(1) + " % of the samples";
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

  reset.addEventListener("click", function () { zoom({ left: 0, width: 1, depth: 0 }); });
  search.addEventListener("click", function () { look(window.prompt("Part of a function or file name:", "")); });
  search.classList.remove("hidden");
  // For links: flamegraph.svg#search=decode
  var asked = /[#&]search=([^&]*)/.exec(window.location.hash);
  if (asked) { look(decodeURIComponent(asked[1])); }
}());
