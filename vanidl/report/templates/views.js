"use strict";
/* The switch between pictures over time, and buttons for what the mouse does in them. */
const Views = (() => {
  const STEP = 0.5;

  function said(range, width) {
    const bins = width ? `, bins of ${Units.seconds(width)}` : "";
    const digits = Math.min(Math.max(3 - Math.floor(Math.log10(range[1] - range[0])), 0), 9);
    const place = (value) => value.toLocaleString("en", {maximumFractionDigits: digits});
    return `${place(Math.max(range[0], 0))} to ${place(range[1])} s${bins}`;
  }

  /* The range that a button leads to, null for the whole run. */
  function wanted(button, range, whole) {
    const [low, high] = range, length = high - low;
    if (button === "whole") return null;
    if (button === "in") return [low + length / 4, high - length / 4];
    if (button === "out") return within([low - length / 2, high + length / 2], whole);
    const by = (button === "later" ? STEP : -STEP) * length;
    return within([low + by, high + by], whole);
  }

  /* The range moved, or cut, to lie in the whole; null where it covers it. */
  function within(range, whole) {
    const length = range[1] - range[0];
    if (length >= whole[1] - whole[0]) return null;
    const low = Math.min(Math.max(range[0], whole[0]), whole[1] - length);
    return [low, low + length];
  }

  function start(box) {
    const choices = [...box.querySelectorAll("input[type=radio]")];
    const figures = box.dataset.figures.split(" ").map((id) => document.getElementById(id));
    const status = box.querySelector(".shown");

    function choose() {
      choices.forEach((choice, i) => figures[i].classList.toggle("off", !choice.checked));
      const open = figures[choices.findIndex((choice) => choice.checked)];
      Plots.shown(open);
    }

    Plots.onDrawn((host, range, width) => {
      if (figures.includes(host.closest("figure"))) status.textContent = said(range, width);
    });
    for (const choice of choices) choice.addEventListener("change", choose);
    box.addEventListener("click", (event) => {
      const pressed = event.target.dataset.zoom;
      if (!pressed) return;
      const host = figures.map((f) => f.querySelector(".plot"))
        .find((p) => p && p.offsetParent && p.dataset.drawn);
      if (!host) return;
      const range = host._fullLayout.xaxis.range.map(Number);
      Plots.zoom(wanted(pressed, range, Plots.whole(host)));
    });
    if (choices.length) choose();
  }

  return {start};
})();
