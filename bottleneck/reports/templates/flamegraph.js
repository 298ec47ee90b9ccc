(function () {
  "use strict";
  var margin = 10, character = 6.6, tolerance = 1e-6;

  // In a file of its own the controls stand inside the graph, in a page around it.
  function start(svg) {
    var area = svg.closest(".flamegraph-area") || svg;
    var boxes = Array.prototype.slice.call(svg.querySelectorAll(".box"));
    var reset = area.querySelector(".reset"), search = area.querySelector(".search"), share = area.querySelector(".share");
    var controls = area.querySelector(".controls");
    var size = svg.viewBox.baseVal, fluid = area !== svg;
    var all = { left: 0, width: 1, depth: 0 }, view = all;

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
      var place = box.place, inner = size.width - 2 * margin;
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

    function look(wanted) {
      wanted = (wanted || "").toLowerCase();
      var spans = [];
      boxes.forEach(function (box) {
        var hit = wanted !== "" && box.place.depth > 0 && box.dataset.label.toLowerCase().indexOf(wanted) >= 0;
        box.classList.toggle("found", hit);
        if (hit) { spans.push([box.place.left, box.place.left + box.place.width]); }
      });
      share.textContent = wanted === "" ? "" : "found: " + (100 * union(spans)).toFixed(1) + " % of the samples";
    }

    // As many units as the page has room for, so that letters keep their size.
    function fill() {
      var width = svg.clientWidth;
      if (width > 0 && width !== size.width) {
        svg.setAttribute("viewBox", "0 0 " + width + " " + size.height);
        boxes.forEach(draw);
      }
    }

    reset.addEventListener("click", function () { zoom(all); });
    if (fluid) {
      search.addEventListener("input", function () { look(search.value); });
      svg.classList.add("fluid");
      controls.classList.remove("hidden");
      window.addEventListener("resize", fill);
      fill();
    } else {
      search.addEventListener("click", function () { look(window.prompt("Part of a function or file name:", "")); });
      search.classList.remove("hidden");
    }
    // For links: flamegraph.svg#search=decode
    var asked = /[#&]search=([^&]*)/.exec(window.location.hash);
    if (asked) { look(decoded(asked[1])); }
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
