"use strict";
/* Pictures: drawn when they come into view, redrawn for width, zoom and colour scheme. */
const Plots = (() => {
  const NARROW = 560;
  const PRINT_WIDTH = 680;
  const MARGIN = 72;
  const touch = window.matchMedia("(hover: none)");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();
  const wholes = new Map();
  const listeners = [];
  const zoomListeners = [];
  let range = null;
  let following = false;
  let figures = new Map();
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
  function legendRoom(layout, names, width) {
    const letters = (texts) => Math.max(0, ...(texts || []).map((text) => String(text).length));
    const entry = 44 + 6.5 * letters(names), labels = 6.5 * letters(layout.yaxis?.ticktext);
    const columns = Math.max(1, Math.floor((width - Math.max(60, labels + 20)) / entry));
    return 19 * Math.max(0, Math.ceil(names.length / columns) - 1);
  }

  /* The entries of a legend: of the series of a group one. */
  function legendNames(data) {
    const shown = data.filter((t) => t.showlegend !== false && t.name);
    return [...new Map(shown.map((t) => [t.legendgroup || t.name, t.name])).values()];
  }

  /* A short bar of colours: zero and one more number, with the unit, whatever the largest is. */
  function fewTicks(trace) {
    const most = trace.zmax ?? trace.z.flat().reduce((a, b) => Math.max(a, b), 0);
    const power = 10 ** Math.floor(Math.log10(most || 1));
    const second = [5, 2, 1].map((n) => n * power).find((n) => n <= most) || power;
    const ticktext = ["0", `${second}${trace.colorbar.ticksuffix}`];
    Object.assign(trace.colorbar, {tickmode: "array", tickvals: [0, second], ticktext, ticksuffix: ""});
  }

  function fitted(layout, data, width) {
    if (width >= NARROW) return layout;
    const names = legendNames(data), extra = legendRoom(layout, names, width);
    const room = (layout.meta ? 24 : 0) + extra;
    layout.legend = {...layout.legend, maxheight: 19 * names.length + 40};  // it never scrolls
    layout.dragmode = false;
    layout.height += room;
    layout.margin = {...layout.margin, l: 44, r: 8, t: layout.margin.t + room};
    layout.font = {...layout.font, size: 11};
    return layout;
  }

  function config(layout) {
    return {
      displaylogo: false,
      doubleClick: false,
      displayModeBar: Boolean(layout.meta) || !touch.matches,
      responsive: false,
      showSendToCloud: false,
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "resetScale2d"],
      toImageButtonOptions: {format: "svg"},
    };
  }

  /* The spec of a picture as it is to be drawn, and the width of its bins in seconds. */
  function prepared(host, width, options) {
    const {spec: source, levels} = figures.get(host.dataset.figure);
    const spec = dark.matches && !options.light ? recoloured(source) : copied(source);
    const layout = fitted(spec.layout, spec.data, width);
    layout.width = width;
    const zoomed = layout.meta && range && !options.light;
    if (zoomed) layout.xaxis = {...layout.xaxis, range: [...range], autorange: false};
    let bin = 0;
    if (levels) {
      const seen = zoomed ? range : [levels.start, levels.end];
      const level = Levels.fitting(levels, seen, width - MARGIN);
      host.dataset.bins = String(levels.bins[level]);
      bin = Levels.fill(spec.data, levels, level);
    }
    if (width < NARROW) spec.data.filter((t) => t.colorbar).forEach(fewTicks);
    return {spec, bin};
  }

  function draw(host, options = {}) {
    const width = options.width || host.clientWidth;
    const {spec, bin} = prepared(host, width, options);
    drawn.add(host);
    return Plotly.react(host, spec.data, spec.layout, config(spec.layout)).then(() => {
      host.dataset.drawn = "yes";
      host.dataset.width = String(width);
      if (!spec.layout.meta) return;
      if (!range) wholes.set(host, host._fullLayout.xaxis.range.map(Number));
      if (!host.dataset.linked) link(host);
      for (const listener of listeners) listener(host, host._fullLayout.xaxis.range, bin);
    });
  }

  /* Saves a picture as a file; one that was not drawn yet is drawn. */
  function save(host, format, title) {
    const filename = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    const height = figures.get(host.dataset.figure).spec.layout.height;
    return draw(host).then(() => Plotly.downloadImage(host, {format, filename, width: host.clientWidth, height, scale: format === "png" ? 2 : 1}));
  }

  function horizontal(change) {
    if (change["xaxis.range"]) return change["xaxis.range"];
    const low = change["xaxis.range[0]"];
    return low === undefined ? null : [low, change["xaxis.range[1]"]];
  }

  function same(a, b) {
    return a.every((value, i) => Math.abs(value - b[i]) < 1e-9 * (1 + Math.abs(value)));
  }

  function visible(host) {
    return host.offsetParent !== null;
  }

  /* All pictures of time show this range, each in the level that fits; null: the whole run. */
  function zoom(wanted) {
    range = wanted;
    following = true;
    for (const listener of zoomListeners) listener(range);
    const hosts = [...drawn].filter((h) => figures.get(h.dataset.figure).spec.layout.meta);
    return Promise.all(hosts.filter(visible).map((host) => draw(host)))
      .finally(() => { following = false; });
  }

  /* Pictures of time zoom together; going back in one goes back in all. */
  function link(host) {
    host.dataset.linked = "yes";
    host.on("plotly_relayout", (change) => {
      const wanted = horizontal(change);
      if (following || !(wanted || change["xaxis.autorange"])) return;
      const whole = wholes.get(host);
      const back = !wanted || (whole && same(wanted.map(Number), whole));
      zoom(back ? null : wanted.map(Number));
    });
    host.on("plotly_doubleclick", () => { zoom(null); });
  }

  function redraw(options) {
    drawn.forEach((host) => { if (visible(host)) draw(host, options); });
  }

  function resized() {
    drawn.forEach((host) => {
      if (visible(host) && Number(host.dataset.width) !== host.clientWidth) draw(host);
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

  /* A figure that was switched on: drawn anew where the zoom or width changed meanwhile. */
  function shown(figure) {
    const host = figure.querySelector(".plot");
    if (host && drawn.has(host)) draw(host);
  }

  function printing(hosts) {
    for (const box of document.querySelectorAll("figure.off")) {
      box.classList.replace("off", "was-off");
    }
    hosts.forEach((host) => draw(host, {light: true, width: PRINT_WIDTH}));
  }

  function printed() {
    for (const box of document.querySelectorAll("figure.was-off")) {
      box.classList.replace("was-off", "off");
    }
    redraw();
  }

  function start(all, colours) {
    darkColours = colours;
    figures = new Map(all.filter((f) => f.spec).map((f) => [f.id, f]));
    const hosts = [...document.querySelectorAll(".plot")];
    watch(hosts);
    let pending = 0;
    window.addEventListener("resize", () => {
      clearTimeout(pending);
      pending = setTimeout(resized, 120);
    });
    dark.addEventListener("change", () => redraw());
    window.addEventListener("beforeprint", () => printing(hosts));
    window.addEventListener("afterprint", printed);
  }

  return {
    start, shown, zoom, save,
    onZoom: (listener) => zoomListeners.push(listener),
    whole: (host) => wholes.get(host) || host._fullLayout.xaxis.range.map(Number),
    onDrawn: (listener) => listeners.push(listener),
  };
})();
