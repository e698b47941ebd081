"use strict";
/* The trace viewer: lanes of a run on a canvas, from the whole run down to one read. */
const Viewer = (() => {
  const {element, button} = TracePanel;
  const {seconds, GUTTER, NARROW, AXIS, BANDWIDTH} = TraceView;
  const KINDS = [["epochs", "epoch"], ["steps", "step"], ["validation", "validation step"], ["waits", "input wait"], ["kernels", "kernel"],
    ["operators", "operator"], ["communication", "collective"], ["copies", "copy"], ["checkpoints", "checkpoint"], ["model", "part of the model"], ["phases", "phase"], ["workers", "worker"], ["preprocessing", "preprocessing"]];
  const KEYS = "w and s zoom, a and d move, arrows go from slice to slice, f fills the view with "
    + "the selected one, 0 shows the whole run, Escape clears.";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];

  class Trace {
    constructor(host, model, colours) {
      Object.assign(this, {host, model, colours, rank: null, picked: null, match: null, printing: false});
      this.byFate = model.packed.byFate;
      this.view = {low: model.base.low, high: model.base.high, rank: null};
      this.rows = TraceView.rowsOf(model.packed, model.base);
      this.worst = model.packed.worst.map(([rank, step, low, high, wait]) => ({rank, step, low, high, wait}));
      this.at = -1;
      this.shared = null;
      this.build();
      this.listen();
      this.readAddress();
      this.resize();
    }

    /* ---- what it consists of ---- */

    build() {
      const {packed} = this.model;
      this.tools = element("div", "tv-tools");
      this.tools.append(...[["whole run", () => this.show(this.model.base.low, this.model.base.high)],
        ["zoom in", () => this.zoom(.5)], ["zoom out", () => this.zoom(2)],
        ["earlier", () => this.move(-.5)], ["later", () => this.move(.5)]].map(([t, a]) => button(t, a)));
      if (this.worst.length) {
        this.tools.append(button("worst step (j)", () => this.toWorst(1)));
      }
      this.ranks = this.rankChoice(packed);
      this.find = element("input");
      this.find.type = "search";
      this.find.placeholder = "step number or part of a file name";
      this.tools.append(button("PNG", () => this.save(), "This view as PNG"));
      const label = element("label", "", "Find (/) ");
      label.append(this.find);
      if (packed.lanes.length) this.tools.append(label);
      this.main = element("div", "tv-main");
      this.main.tabIndex = 0;
      this.main.setAttribute("role", "application");
      this.main.setAttribute("aria-label", `Trace viewer. ${KEYS}`);
      this.map = element("canvas", "tv-map");
      this.top = element("canvas", "tv-top");
      this.scroll = element("div", "tv-scroll");
      this.scroll.tabIndex = 0;
      this.scroll.setAttribute("role", "group");
      this.scroll.setAttribute("aria-label", "Lanes; arrow keys scroll where they do not fit");
      this.space = element("div", "tv-space");
      this.canvas = element("canvas", "tv-lanes");
      this.band = element("div", "tv-band");
      this.band.hidden = true;
      this.tip = element("div", "tv-tip");
      this.tip.hidden = true;
      this.space.append(this.canvas);
      this.scroll.append(this.space);
      this.more = element("p", "tv-more");
      this.main.append(this.map, this.top, this.scroll, this.more, this.band, this.tip);
      this.panel = element("aside", "tv-panel");
      this.panel.hidden = true;
      this.panel.setAttribute("aria-label", "Selected slice");
      this.status = element("p", "tv-status");
      this.status.setAttribute("role", "status");
      this.table = element("details", "tv-table");
      this.table.append(element("summary", "", "what is in view, as a table"), element("div"));
      const body = element("div", "tv-body");
      body.append(this.main, this.panel);
      this.host.append(this.tools, body, this.legend(), this.status);
      if (packed.lanes.length) this.host.append(this.table);
    }

    rankChoice(packed) {
      const ranks = Object.entries(packed.ranks);
      if (ranks.length < 2) return null;
      const label = element("label", "", "Show "), select = element("select");
      select.append(new Option("all ranks", ""));
      for (const [rank, name] of ranks) select.append(new Option(name, rank));
      select.addEventListener("change", () => { this.setRank(select.value || null); });
      label.append(select);
      this.tools.append(label);
      return select;
    }

    legend() {
      const list = element("p", "tv-legend");
      const {packed} = this.model, {palette} = packed;
      const entry = (name, colour, hatch) => {
        const sample = element("span", "tv-sample");
        sample.dataset.colour = colour;
        sample.dataset.hatch = hatch || "";
        const item = element("span", "", "");
        item.append(sample, document.createTextNode(name));
        list.append(item);
      };
      const kinds = new Set(packed.lanes.map((lane) => lane.kind));
      const shown = KINDS.filter(([kind]) => kinds.has(kind)), colours = new Set(shown.map(([kind]) => palette.kinds[kind]));
      for (const colour of colours) entry(shown.filter(([kind]) => palette.kinds[kind] === colour).map(([, name]) => name).join(" or "), colour);
      const byFate = this.byFate && kinds.has("io"), rates = this.model.bandwidth;
      if (byFate) palette.fates.forEach((f, i) => { if (this.hasFate(i)) entry(f.label, f.colour, f.hatch); });
      if (rates && (!byFate || rates.read.some((n) => n))) entry(byFate ? "bytes read" : "read", palette.read);
      if (rates && (!byFate || rates.written.some((n) => n))) entry(byFate ? "bytes written" : "write", palette.write, byFate ? "" : "/");
      if (!this.byFate && packed.held < packed.total && kinds.has("io")) entry("read or write", palette.busy);
      return list;
    }

    /* Whether any operation here has a fate, or has it in part. */
    hasFate(fate) {
      const {base, packed} = this.model, isIo = (lane) => packed.lanes[lane].kind === "io";
      if (base.tracks.some((t) => isIo(t.lane) && base.code.subarray(t.low, t.high).includes(fate))) return true;
      if (!base.bins) return false;
      return [...base.bins.series].some(([key, all]) => isIo(Number(key.split(",")[0])) && all.some((s) => s.fate === fate));
    }

    /* ---- size and colours ---- */

    resize() {
      const width = this.main.clientWidth;
      if (!width) return;
      this.narrow = width < NARROW;
      this.gutter = this.narrow ? 0 : GUTTER;
      this.width = width - this.gutter;
      this.ratio = this.printing ? 2 : Math.min(window.devicePixelRatio || 1, 2);
      this.plan = TraceView.layout(this.model.packed, this.rows, this.rank, this.narrow);
      const height = this.printing ? this.plan.height : Math.min(this.plan.height, 0.62 * window.innerHeight);
      this.height = this.plan.boxes.length ? Math.max(Math.round(height), 40) : 0;
      this.above = AXIS + (this.model.bandwidth ? BANDWIDTH : 0);
      this.scroll.style.height = `${this.height}px`;
      this.space.style.height = `${this.plan.height}px`;
      for (const [canvas, h] of [[this.map, 26], [this.top, this.above], [this.canvas, this.height]]) {
        canvas.width = Math.round(width * this.ratio);
        canvas.height = Math.round(h * this.ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${h}px`;
      }
      this.recolour();
    }

    recolour() {
      const isDark = dark.matches && !this.printing;
      const twin = (colour) => (isDark && this.colours[colour]) || colour;
      const {palette} = this.model.packed;
      this.ink = twin(palette.ink);
      this.faint = twin(palette.faint);
      this.paper = twin(palette.paper);
      this.soft = twin(palette.soft);
      this.rw = [twin(palette.read), twin(palette.write)];
      this.look = TraceDraw.scheme(palette, twin);
      this.raster = new TraceDraw.Raster(Math.round(this.width * this.ratio), this.canvas.height, this.paper);
      for (const box of this.plan.boxes) box.look = this.look;
      for (const sample of this.host.querySelectorAll(".tv-sample")) {
        sample.style.backgroundColor = twin(sample.dataset.colour);
      }
      this.drawMap();
      this.request();
    }

    /* ---- moving ---- */

    show(low, high) {
      this.view = {...TraceView.within(low, high, this.model.base), rank: this.rank};
      this.request();
    }

    zoom(factor, at = (this.view.low + this.view.high) / 2) {
      this.show(at - (at - this.view.low) * factor, at + (this.view.high - at) * factor);
    }

    move(share) {
      const by = share * (this.view.high - this.view.low), {low, high} = this.model.base;
      const kept = Math.min(Math.max(by, low - this.view.low), high - this.view.high);
      this.show(this.view.low + kept, this.view.high + kept);
    }

    setRank(rank) {
      this.rank = rank;
      this.view.rank = rank;
      if (this.ranks) this.ranks.value = rank || "";
      this.pick(null);
      this.resize();
    }

    toWorst(by) {
      if (!this.worst.length) return;
      this.at = (this.at + by + this.worst.length) % this.worst.length;
      const step = this.worst[this.at], margin = .1 * (step.high - step.low);
      if (this.rank !== null && this.rank !== String(step.rank)) this.setRank(null);
      this.show(step.low - margin, step.high + margin);
      this.pickAt(step.rank, "steps", (step.low + step.high) / 2);
      const rank = Object.keys(this.model.packed.ranks).length > 1 ? `, ${this.model.packed.ranks[step.rank]}` : "";
      const wait = step.wait === null ? "" : `, waited ${seconds(step.wait * 1e9)}`;
      this.say(`Worst step ${this.at + 1} of ${this.worst.length}: step ${step.step}${rank}${wait}.`);
    }

    /* ---- when it comes to rest ---- */

    async settled() {
      this.tell();
      this.writeAddress();
      if (this.table.open) this.fillTable();
      this.host.dataset.settled = "yes";
      this.share();
      const lanes = [...new Set(this.visible.map((box) => box.lane.index))];
      try {
        if (!this.fetching && await this.fetchMore(lanes)) this.request();
      } catch (error) {
        this.say(`More could not be loaded: ${error.message}.`);
      }
    }

    /* The view as a picture: map, bandwidth and lanes, one below the other. */
    save() {
      const parts = [this.top, this.canvas], all = document.createElement("canvas");
      all.width = this.canvas.width;
      all.height = parts.reduce((sum, part) => sum + part.height, 0);
      const context = all.getContext("2d");
      let y = 0;
      for (const part of parts) { context.drawImage(part, 0, y); y += part.height; }
      all.toBlob((blob) => TableFiles.save("trace", "image/png", blob));
    }

    async fetchMore(lanes) {
      this.fetching = true;
      try { return await this.model.fetch(this.view, this.width * this.ratio, lanes); } finally { this.fetching = false; }
    }

    /* Tells the other pictures of time which one is in view: null for the whole run. */
    share() {
      const range = this.isWhole() ? null : [this.view.low / 1e9, this.view.high / 1e9];
      if (String(range) === String(this.shared)) return;
      this.shared = range;
      for (const listener of listeners) listener(range);
    }

    /* Shows what another picture of time was zoomed to. */
    follow(range) {
      if (String(range) === String(this.shared)) return;
      this.shared = range;
      const {low, high} = this.model.base;
      if (range) this.show(range[0] * 1e9, range[1] * 1e9); else this.show(low, high);
    }

    isWhole() { return this.view.low <= this.model.base.low && this.view.high >= this.model.base.high; }

    fillTable() {
      const host = this.table.lastChild;
      host.replaceChildren();
      Tables.build(host, TracePanel.inView(this.model, this.view, this.plan.boxes), "Slices in view");
    }

    listen() {
      TraceInput.listen(this);
      this.find.addEventListener("input", () => this.search());
      this.find.addEventListener("keydown", (event) => { if (event.key === "Escape") this.main.focus(); });
      this.table.addEventListener("toggle", () => { if (this.table.open) this.fillTable(); });
      this.scroll.addEventListener("scroll", () => this.request());
      dark.addEventListener("change", () => this.recolour());
      new ResizeObserver(() => { if (this.main.clientWidth !== Math.round(this.width + this.gutter)) this.resize(); }).observe(this.main);
      window.addEventListener("hashchange", () => {
        if (this.readAddress()) { this.resize(); this.host.scrollIntoView({block: "nearest"}); }
      });
      const print = (on) => { this.printing = on; this.resize(); this.draw(); };
      window.addEventListener("beforeprint", () => print(true));
      window.addEventListener("afterprint", () => print(false));
    }
  }

  Object.assign(Trace.prototype, TracePaint, TraceSelect, TraceSearch, TraceAddress);

  async function start(host, packed, colours) {
    if (typeof DecompressionStream === "undefined") {
      host.append(element("p", "reason", "This browser cannot unpack the trace (DecompressionStream is missing); any browser since 2023 can."));
      return null;
    }
    const trace = new Trace(host, await TraceModel.load(packed), colours);
    host.trace = trace;
    if (/^#(t|rank)=/.test(location.hash)) host.scrollIntoView({block: "start"});
    return trace;
  }

  return {start, onView: (listener) => listeners.push(listener)};
})();
