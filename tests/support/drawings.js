// What axe-core does not judge of a page: the contrast of drawings, and where links lead. A list of sentences.
// Contrasts are those of WCAG 2.1, AA: 4.5 for text, 3 for what is drawn.
(function () {
  "use strict";
  var found = [];

  function say(element, what) {
    found.push(what + ": " + element.outerHTML.slice(0, 120));
  }

  function all(selector) {
    return Array.prototype.slice.call(document.querySelectorAll(selector)).filter(isShown);
  }

  function isShown(element) {
    return element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  }

  function parse(colour) {
    var parts = (colour.match(/[\d.]+/g) || []).map(Number);
    return parts.length < 3 || parts[3] === 0 ? null : parts;
  }

  function light(colour) {
    var linear = colour.slice(0, 3).map(function (part) {
      part /= 255;
      return part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  function contrast(one, other) {
    var lights = [light(one), light(other)].sort(function (a, b) { return b - a; });
    return (lights[0] + 0.05) / (lights[1] + 0.05);
  }

  function behind(element) {
    for (var at = element; at; at = at.parentElement) {
      var colour = parse(getComputedStyle(at).backgroundColor);
      if (colour) { return colour; }
    }
    return [255, 255, 255];
  }

  function check(element, front, back, least, what) {
    if (!front || !back) { return; }
    var seen = contrast(front, back);
    if (seen < least) { say(element, what + " has a contrast of " + seen.toFixed(2)); }
  }

  function texts() {
    all("svg text").forEach(function (text) {
      var box = text.closest(".box"), rect = box && box.querySelector("rect");
      check(text, parse(getComputedStyle(text).fill), rect ? parse(getComputedStyle(rect).fill) : behind(text), 4.5, "text");
    });
  }

  function marks() {
    all("svg rect, svg circle").forEach(function (mark) {
      check(mark, parse(getComputedStyle(mark).fill), behind(mark), 3, "a mark");
    });
    all("svg line.axis, svg line.bound").forEach(function (line) {
      check(line, parse(getComputedStyle(line).stroke), behind(line), 3, "a line");
    });
    all(".meter span, .key:not(.waits)").forEach(function (mark) {
      check(mark, parse(getComputedStyle(mark).backgroundColor), behind(mark.parentElement), 3, "a mark");
    });
    all(".card, .node.hot").forEach(function (box) {
      check(box, parse(getComputedStyle(box).borderLeftColor), behind(box), 3, "a border");
    });
  }

  function links() {
    var ids = Array.prototype.map.call(document.querySelectorAll("[id]"), function (element) { return element.id; });
    if (new Set(ids).size !== ids.length) { found.push("two elements have one id"); }
    all("a[href^='#']").forEach(function (link) {
      if (ids.indexOf(link.getAttribute("href").slice(1)) < 0) { say(link, "it leads nowhere"); }
    });
  }

  texts();
  marks();
  links();
  return found;
}())
