"use strict";
/* Pictures: drawn when they come into view, redrawn for width and colour scheme. */
const Plots = (() => {
  const NARROW = 560;
  const PRINT_WIDTH = 680;
  const touch = window.matchMedia("(hover: none)");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();
  const linked = new Map();
  let following = false;
  let specs = new Map();
  let darkColours = {};

  /* A copy of a spec in which each light colour is replaced by its dark twin. */
  function recoloured(value) {
    if (typeof value === "string") return darkColours[value] || value;
    if (Array.isArray(value)) return value.map(recoloured);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, recoloured(v)]));
  }

  function copied(value) {
    return JSON.parse(JSON.stringify(value));
  }

  /* Height in pixels that a legend above a narrow picture takes beyond its first row. */
  function legendRoom(data, width) {
    const names = [...new Set(data.filter((t) => t.showlegend !== false && t.name)
      .map((t) => t.legendgroup || t.name))];
    const entry = 44 + 6.5 * Math.max(0, ...names.map((name) => name.length));
    const columns = Math.max(1, Math.floor((width - 60) / entry));
    return 19 * Math.max(0, Math.ceil(names.length / columns) - 1);
  }

  function fitted(layout, data, width) {
    if (width >= NARROW) return layout;
    const extra = legendRoom(data, width);
    const room = (layout.meta ? 24 : 0) + extra;
    layout.legend = {...layout.legend, maxheight: extra + 40};
    layout.dragmode = false;
    layout.height += room;
    layout.margin = {...layout.margin, l: 44, r: 8, t: layout.margin.t + room};
    layout.font = {...layout.font, size: 11};
    return layout;
  }

  function config(width, layout) {
    return {
      displaylogo: false,
      doubleClick: "reset",
      displayModeBar: Boolean(layout.meta) || !touch.matches,
      responsive: false,
      showSendToCloud: false,
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      toImageButtonOptions: {format: "svg"},
    };
  }

  function draw(host, options = {}) {
    const width = options.width || host.clientWidth;
    const source = specs.get(host.dataset.figure);
    const spec = dark.matches && !options.light ? recoloured(source) : copied(source);
    const layout = fitted(spec.layout, spec.data, width);
    layout.width = width;
    drawn.add(host);
    return Plotly.react(host, spec.data, layout, config(width, layout)).then(() => {
      host.dataset.drawn = "yes";
      host.dataset.width = String(width);
      if (layout.meta && !linked.has(host)) link(host);
    });
  }

  function horizontal(change) {
    if (change["xaxis.range"]) return change["xaxis.range"];
    const low = change["xaxis.range[0]"];
    return low === undefined ? null : [low, change["xaxis.range[1]"]];
  }

  function same(a, b) {
    return a.every((value, i) => Math.abs(value - b[i]) < 1e-9 * (1 + Math.abs(value)));
  }

  /* Pictures of time zoom together; going back in one goes back in all. */
  function link(host) {
    linked.set(host, [...host.layout.xaxis.range]);
    host.on("plotly_relayout", (change) => {
      const range = horizontal(change);
      if (following || !(range || change["xaxis.autorange"])) return;
      const back = !range || same(range, linked.get(host));
      following = true;
      const others = [...linked].filter(([other]) => other !== host);
      Promise.all(others.map(([other, whole]) =>
        Plotly.relayout(other, {"xaxis.range": [...(back ? whole : range)]})))
        .finally(() => { following = false; });
    });
  }

  function redraw(options) {
    drawn.forEach((host) => draw(host, options));
  }

  function resized() {
    drawn.forEach((host) => {
      if (Number(host.dataset.width) !== host.clientWidth) draw(host);
    });
  }

  function watch(hosts) {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    }, {rootMargin: "400px"});
    hosts.forEach((host) => seen.observe(host));
  }

  function start(figures, colours) {
    darkColours = colours;
    specs = new Map(figures.filter((f) => f.spec).map((f) => [f.id, f.spec]));
    const hosts = [...document.querySelectorAll(".plot")];
    watch(hosts);
    let pending = 0;
    window.addEventListener("resize", () => {
      clearTimeout(pending);
      pending = setTimeout(resized, 120);
    });
    dark.addEventListener("change", () => redraw());
    window.addEventListener("beforeprint", () => {
      hosts.forEach((host) => draw(host, {light: true, width: PRINT_WIDTH}));
    });
    window.addEventListener("afterprint", () => redraw());
  }

  return {start};
})();
