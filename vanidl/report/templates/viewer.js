"use strict";
/* The trace viewer: lanes of a run on a canvas, from the whole run down to one read. */
const Viewer = (() => {
  const {element, button} = TracePanel;
  const {seconds, bytes, instant, GUTTER, NARROW, AXIS, BANDWIDTH} = TraceView;
  const KEYS = "w and s zoom, a and d move, arrows go from slice to slice, f fills the view with "
    + "the selected one, 0 shows the whole run, Escape clears.";
  const SETTLED_MS = 160;
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
      const label = element("label", "", "Find (/) ");
      label.append(this.find);
      this.tools.append(label);
      this.main = element("div", "tv-main");
      this.main.tabIndex = 0;
      this.main.setAttribute("role", "application");
      this.main.setAttribute("aria-label", `Trace viewer. ${KEYS}`);
      this.map = element("canvas", "tv-map");
      this.top = element("canvas", "tv-top");
      this.scroll = element("div", "tv-scroll");
      this.space = element("div", "tv-space");
      this.canvas = element("canvas", "tv-lanes");
      this.band = element("div", "tv-band");
      this.band.hidden = true;
      this.tip = element("div", "tv-tip");
      this.tip.hidden = true;
      this.space.append(this.canvas);
      this.scroll.append(this.space);
      this.main.append(this.map, this.top, this.scroll, this.band, this.tip);
      this.panel = element("aside", "tv-panel");
      this.panel.hidden = true;
      this.panel.setAttribute("aria-label", "Selected slice");
      this.status = element("p", "tv-status");
      this.status.setAttribute("role", "status");
      this.table = element("details", "tv-table");
      this.table.append(element("summary", "", "what is in view, as a table"), element("div"));
      const body = element("div", "tv-body");
      body.append(this.main, this.panel);
      this.host.append(this.tools, body, this.legend(), this.status, this.table);
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
      const {palette} = this.model.packed;
      const entry = (name, colour, hatch) => {
        const sample = element("span", "tv-sample");
        sample.dataset.colour = colour;
        sample.dataset.hatch = hatch || "";
        const item = element("span", "", "");
        item.append(sample, document.createTextNode(name));
        list.append(item);
      };
      entry("step", palette.kinds.steps);
      entry("input wait", palette.kinds.waits);
      const used = new Set(this.model.base.code);
      if (this.model.base.bins) for (const all of this.model.base.bins.series.values()) for (const s of all) used.add(s.fate);
      if (this.byFate) palette.fates.forEach((f, i) => { if (used.has(i)) entry(f.label, f.colour, f.hatch); });
      else { entry("read", palette.read); entry("write", palette.write, "/"); }
      return list;
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
      this.height = Math.max(Math.round(height), 40);
      this.scroll.style.height = `${this.height}px`;
      this.space.style.height = `${this.plan.height}px`;
      for (const [canvas, h] of [[this.map, 26], [this.top, AXIS + BANDWIDTH], [this.canvas, this.height]]) {
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

    /* ---- drawing ---- */

    request() {
      if (this.pending) return;
      this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
    }

    draw() {
      const before = performance.now();
      this.drawTop();
      this.drawLanes();
      this.placeBand();
      this.host.dataset.ms = String(performance.now() - before);
      this.host.dataset.drawn = "yes";
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.settled(), SETTLED_MS);
    }

    drawTop() {
      const context = this.top.getContext("2d"), r = this.ratio;
      context.fillStyle = this.paper;
      context.fillRect(0, 0, this.top.width, this.top.height);
      const box = {x: this.gutter * r, y: 0, width: Math.round(this.width * r), height: this.top.height, ratio: r};
      TraceView.drawAxis(context, this.view, box, this.soft, this.faint);
      const area = {...box, y: AXIS * r, height: BANDWIDTH * r - 1};
      const most = TraceView.drawBandwidth(context, this.model.bandwidth, this.view, area, this.rw);
      context.fillStyle = this.soft;
      const text = this.model.bandwidth ? `to ${bytes(most)}/s` : "";
      context.fillText(text, 2 * r, (AXIS + 8) * r);
      if (!this.narrow && text) context.fillText("all I/O", 2 * r, (AXIS + 24) * r);
    }

    drawLanes() {
      const {raster, ratio: r} = this, offset = this.scroll.scrollTop;
      const context = this.canvas.getContext("2d");
      raster.clear();
      const labels = new TraceDraw.Labels(r);
      const state = {byFate: this.byFate, matchCode: (data) => this.codeOf(data)};
      let slices = 0;
      this.visible = [];
      for (const box of this.plan.boxes) {
        const y = Math.round((box.y - offset) * r), height = Math.round(box.height * r);
        if (y + height < 0 || y > raster.height) continue;
        this.visible.push(box);
        const data = this.model.dataFor(this.view, box.lane.index);
        slices += TraceDraw.drawTrack(raster, data, {...box, y, height, gaps: true}, this.view, state, labels);
      }
      this.slices = slices;
      this.host.dataset.slices = String(slices);
      context.fillStyle = this.paper;
      context.fillRect(0, 0, this.canvas.width, this.canvas.height);
      context.putImageData(raster.image, Math.round(this.gutter * r), 0);
      context.save();
      context.translate(this.gutter * r, 0);
      labels.write(context, (data, lane, entry) => this.labelOf(data, lane, entry));
      this.drawMarks(context, offset);
      context.restore();
      this.drawNames(context, offset);
    }

    /* The number of the file that is looked for among the names of some data, -1 for none. */
    codeOf(data) {
      if (this.match === null) return -1;
      if (!data.matched || data.matched.name !== this.match) data.matched = {name: this.match, code: data.names.indexOf(this.match)};
      return data.matched.code;
    }

    labelOf(data, lane, entry) {
      if (lane.kind === "steps" || lane.kind === "epochs" || lane.kind === "validation") return String(data.entries.offset[entry]);
      if (lane.kind === "waits") return "wait";
      const name = data.entries.name[entry];
      if (name < 0) return "";
      const text = data.names[name];
      return lane.kind === "io" ? text.slice(text.lastIndexOf("/") + 1) : text;
    }

    x(time) { return (time - this.view.low) / (this.view.high - this.view.low) * this.width; }

    time(x) { return this.view.low + (x - this.gutter) / this.width * (this.view.high - this.view.low); }

    /* The worst steps, the selected slice, and arrows from the batch that it is about. */
    drawMarks(context, offset) {
      const r = this.ratio;
      this.worst.slice(0, 3).forEach((step, i) => {
        const box = this.plan.boxes.find((b) => b.lane.rank === step.rank && b.lane.kind === "steps");
        if (!box) return;
        const a = this.x(step.low), b = Math.max(this.x(step.high), a + 2);
        if (b < 0 || a > this.width) return;
        context.strokeStyle = this.ink;
        context.lineWidth = (i === 0 ? 2 : 1) * r;
        context.strokeRect(a * r, (box.y - offset) * r, (b - a) * r, box.height * r);
      });
      if (!this.picked) return;
      const {slice, box} = this.picked, y = (box.y - offset) * r;
      const a = this.x(slice.start), b = Math.max(this.x(slice.end), a + 3);
      context.strokeStyle = this.ink;
      context.lineWidth = 2 * r;
      context.strokeRect((a - 1) * r, y - r, (b - a + 2) * r, (box.height + 2) * r);
      for (const arrow of this.arrowsOf(this.picked)) this.drawArrow(context, arrow, offset);
    }

    arrowsOf({lane, slice}) {
      const all = this.model.arrows || [], lanes = this.model.packed.lanes;
      if (lane.kind === "io") return all.filter((a) => lanes[a.lane].rank === lane.rank && a.lane === lane.index && a.read >= slice.start).slice(0, 1);
      return all.filter((a) => lanes[a.to].rank === lane.rank && a.taken > slice.start && a.taken <= slice.end).slice(0, 8);
    }

    drawArrow(context, arrow, offset) {
      const r = this.ratio, box = (lane) => this.plan.boxes.find((b) => b.lane.index === lane);
      const from = box(arrow.lane), to = box(arrow.to);
      if (!from || !to) return;
      const x0 = this.x(arrow.read) * r, y0 = (from.y + from.height / 2 - offset) * r;
      const x1 = this.x(arrow.taken) * r, y1 = (to.y + to.height - offset) * r;
      context.strokeStyle = context.fillStyle = this.ink;
      context.lineWidth = 1.25 * r;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
      context.stroke();
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x1 - 4 * r, y1 + 7 * r);
      context.lineTo(x1 + 4 * r, y1 + 7 * r);
      context.fill();
    }

    drawNames(context, offset) {
      const r = this.ratio;
      context.textBaseline = "middle";
      for (const name of this.plan.names) {
        const y = (name.y - offset) * r;
        if (y < -20 * r || y > this.canvas.height) continue;
        context.font = `${name.head ? "600 " : ""}${(this.narrow ? 10 : 11.5) * r}px system-ui, sans-serif`;
        context.fillStyle = name.head ? this.ink : this.soft;
        const at = name.head ? y + 8 * r : this.narrow ? y - 6 * r : y + name.height * r / 2;
        context.fillText(name.text, 2 * r, at, Math.max(this.gutter * r - 8 * r, 40 * r) + (this.narrow ? 200 * r : 0));
      }
    }

    drawMap() {
      const context = this.map.getContext("2d"), r = this.ratio;
      context.fillStyle = this.paper;
      context.fillRect(0, 0, this.map.width, this.map.height);
      const box = {x: this.gutter * r, y: 2 * r, width: Math.round(this.width * r), height: this.map.height - 4 * r, ratio: r};
      const whole = {low: this.model.base.low, high: this.model.base.high};
      TraceView.drawBandwidth(context, this.model.bandwidth, whole, box, this.rw);
      context.fillStyle = this.faint;
      context.fillRect(box.x, this.map.height - r, box.width, r);
      context.fillStyle = this.rw[0];
      for (const step of this.worst.slice(0, 3)) {
        context.fillStyle = this.ink;
        context.fillRect(box.x + (step.low - whole.low) / (whole.high - whole.low) * box.width, 0, 2 * r, 5 * r);
      }
    }

    /* The part of the run that is in view, on the map. */
    placeBand() {
      const {low, high} = this.model.base, length = high - low;
      const a = (this.view.low - low) / length, b = (this.view.high - low) / length;
      this.band.hidden = b - a >= 1;
      this.band.style.left = `${this.gutter + a * this.width}px`;
      this.band.style.width = `${Math.max((b - a) * this.width, 3)}px`;
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

    /* ---- selecting ---- */

    pick(picked) {
      this.picked = picked;
      TracePanel.show(this.panel, this.model, picked, {
        focus: () => this.focusPicked(), step: (by) => this.next(by), close: () => { this.pick(null); this.main.focus(); }});
      if (this.main.clientWidth !== Math.round(this.width + this.gutter)) this.resize();
      this.request();
    }

    pickAt(rank, kind, time) {
      const box = this.plan.boxes.find((b) => b.lane.rank === rank && b.lane.kind === kind);
      if (box) this.pickIn(box, time, 0);
    }

    pickIn(box, time, slack) {
      const data = this.model.dataFor(this.view, box.lane.index), track = data.byTrack.get(box.key);
      const piece = track ? TraceData.at(data, track, time, slack) : -1;
      if (piece < 0) return false;
      this.pick({box, lane: box.lane, slice: TraceData.entry(data, data.owner[piece]), piece});
      return true;
    }

    /* The slice before or after the selected one, in its row. */
    next(by) {
      if (!this.picked) {
        const box = this.visible.find((b) => this.model.dataFor(this.view, b.lane.index).byTrack.has(b.key));
        if (box) this.pickIn(box, this.view.low, this.view.high - this.view.low);
        return;
      }
      const {box} = this.picked, data = this.model.dataFor(this.view, box.lane.index), track = data.byTrack.get(box.key);
      if (!track) return;
      let piece = TraceData.at(data, track, this.picked.slice.start, 1);
      const own = data.owner[piece];
      while (piece >= track.low && piece < track.high && data.owner[piece] === own) piece += by;
      if (piece < track.low || piece >= track.high) return;
      const slice = TraceData.entry(data, data.owner[piece]);
      this.pick({...this.picked, slice, piece});
      if (slice.end > this.view.high || slice.start < this.view.low) {
        const half = (this.view.high - this.view.low) / 2, middle = (slice.start + slice.end) / 2;
        this.show(middle - half, middle + half);
      }
    }

    /* The selection in the lane above or below. */
    aside(by) {
      const boxes = this.plan.boxes;
      let i = this.picked ? boxes.findIndex((b) => b.key === this.picked.box.key) + by : 0;
      const slack = this.view.high - this.view.low;
      const time = this.picked ? Math.min(Math.max(this.picked.slice.start, this.view.low), this.view.high) : this.view.low;
      for (; i >= 0 && i < boxes.length; i += by) {
        if (this.pickIn(boxes[i], time, slack)) { this.reveal(boxes[i]); return; }
      }
    }

    reveal(box) {
      const top = this.scroll.scrollTop;
      if (box.y < top) this.scroll.scrollTop = Math.max(box.y - 30, 0);
      else if (box.y + box.height > top + this.height) this.scroll.scrollTop = box.y + box.height - this.height + 10;
    }

    focusPicked() {
      if (!this.picked) return;
      const {start, end} = this.picked.slice, margin = Math.max(.25 * (end - start), 50);
      this.show(start - margin, end + margin);
    }

    boxAt(y) {
      const at = y + this.scroll.scrollTop;
      return this.plan.boxes.find((b) => at >= b.y - 1 && at <= b.y + b.height + 1);
    }

    /* ---- searching ---- */

    search() {
      const words = this.find.value.trim();
      this.match = null;
      if (!words) { this.say(""); this.request(); return; }
      if (/^\d+$/.test(words) && this.toStep(Number(words))) return;
      this.toFile(words.toLowerCase());
    }

    toStep(number) {
      const {base, packed} = this.model;
      for (const track of base.tracks) {
        const lane = packed.lanes[track.lane];
        if (lane.kind !== "steps" || (this.rank !== null && String(lane.rank) !== this.rank)) continue;
        for (let e = track.entry; e < track.entry + track.entries; e++) {
          if (base.entries.offset[e] !== number) continue;
          const step = TraceData.entry(base, e), margin = .1 * (step.end - step.start);
          this.show(step.start - margin, step.end + margin);
          this.pickAt(lane.rank, "steps", (step.start + step.end) / 2);
          this.say(`Step ${number}.`);
          return true;
        }
      }
      return false;
    }

    toFile(words) {
      if (this.model.packed.server) { this.ask(words); return; }
      const data = this.model.base;
      const names = data.names.filter((name) => name.toLowerCase().includes(words));
      if (!names.length) { this.say(`No step and no file in this page matches "${words}".`); this.request(); return; }
      this.match = names[0];
      const code = data.names.indexOf(names[0]);
      let count = 0, first = null;
      for (const track of data.tracks) {
        if (this.model.packed.lanes[track.lane].kind !== "io") continue;
        for (let e = track.entry; e < track.entry + track.entries; e++) {
          if (data.entries.name[e] !== code) continue;
          count++;
          const start = data.start[data.first[e]];
          if (first === null || start < first.start) first = {start, e, track};
        }
      }
      const more = names.length > 1 ? `, the first of ${names.length.toLocaleString("en")} files that match` : "";
      this.say(`${count.toLocaleString("en")} ${count === 1 ? "operation" : "operations"} on ${names[0]}${more}.`);
      if (first) {
        const box = this.plan.boxes.find((b) => b.key === `${first.track.lane},${first.track.row}`);
        if (box) { this.pick({box, lane: box.lane, slice: TraceData.entry(data, first.e)}); this.reveal(box); }
        if (first.start < this.view.low || first.start > this.view.high) this.show(this.model.base.low, this.model.base.high);
      }
      this.request();
    }

    /* As toFile, in the whole run behind the page. */
    async ask(words) {
      const found = await TraceModel.find(words).catch((error) => ({error}));
      if (found.error || !found.matches) {
        this.say(found.error ? `${found.error.message}.` : `No step and no file matches "${words}".`);
        return;
      }
      this.match = found.name;
      const more = found.matches > 1 ? `, the first of ${found.matches.toLocaleString("en")} files that match` : "";
      this.say(`${found.count.toLocaleString("en")} ${found.count === 1 ? "operation" : "operations"} on ${found.name}${more}.`);
      this.request();
      if (!found.first) return;
      const [start, lane, row] = found.first, half = (this.view.high - this.view.low) / 2;
      if (start < this.view.low || start > this.view.high) this.show(start - half, start + half);
      const box = this.plan.boxes.find((b) => b.key === `${lane},${row}`);
      if (box) { this.pickIn(box, start, 1); this.reveal(box); }
    }

    say(text) { this.said = text; this.tell(); }

    tell() {
      const step = (this.view.high - this.view.low) / 1000;
      const {held, total} = this.model.packed;
      const range = `${instant(this.view.low, step)} s to ${instant(this.view.high, step)} s, ${seconds(this.view.high - this.view.low)} in view.`;
      const noun = this.slices === 1 ? "slice" : "slices";
      const drawn = held === total || this.model.packed.server || this.slices ? ` ${this.slices.toLocaleString("en")} ${noun} drawn.` : "";
      this.status.textContent = `${this.said ? this.said + " " : ""}${range}${drawn}`;
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

    /* ---- the address ---- */

    writeAddress() {
      const step = (this.view.high - this.view.low) / 1000;
      const parts = this.isWhole() ? [] : [`t=${instant(this.view.low, step)}-${instant(this.view.high, step)}`];
      if (this.rank !== null) parts.push(`rank=${this.rank}`);
      const wanted = parts.length ? `#${parts.join("&")}` : "";
      const own = /^#(t|rank)=/.test(location.hash);
      if (location.hash === wanted || (!wanted && !own)) return;
      history.replaceState(null, "", wanted || location.pathname + location.search);
    }

    /* The time and rank that the address names; whether it names one. */
    readAddress() {
      const values = new URLSearchParams(location.hash.slice(1));
      const time = /^(-?[\d.]+)-(-?[\d.]+)$/.exec(values.get("t") || "");
      const rank = values.get("rank");
      if (!time && rank === null) return false;
      if (rank !== null && rank in this.model.packed.ranks) {
        this.rank = rank;
        this.view.rank = rank;
        if (this.ranks) this.ranks.value = rank;
      }
      if (time && Number(time[2]) > Number(time[1])) {
        const found = TraceView.within(Number(time[1]) * 1e9, Number(time[2]) * 1e9, this.model.base);
        this.view = {...found, rank: this.rank};
      }
      return true;
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
