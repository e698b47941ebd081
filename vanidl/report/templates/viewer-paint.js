"use strict";
/* How the trace viewer paints: bandwidth, lanes, names, marks and the map. */
const TracePaint = (() => {
  const {AXIS, BANDWIDTH} = TraceView, {bytes} = Units;
  const SETTLED_MS = 160;

  return {
    request() {
      if (this.pending) return;
      this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
    },

    draw() {
      const before = performance.now();
      this.drawTop();
      this.drawLanes();
      this.placeBand();
      this.host.dataset.ms = String(performance.now() - before);
      this.host.dataset.drawn = "yes";
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.settled(), SETTLED_MS);
    },

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
    },

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
      this.tellHidden(offset);
    },

    /* How many lanes are scrolled out of view: a bar at the side alone is easily missed. */
    tellHidden(offset) {
      const seen = new Set(this.visible.map((box) => box.lane.index));
      const hidden = new Map(this.plan.boxes.filter((box) => !seen.has(box.lane.index)).map((box) => [box.lane.index, box.y < offset]));
      const above = [...hidden.values()].filter(Boolean).length, below = hidden.size - above;
      const lanes = (n, side) => n ? [`${n} more lane${n === 1 ? "" : "s"} ${side}`] : [];
      this.more.textContent = [...lanes(above, "above"), ...lanes(below, "below")].join(", ");
      this.more.hidden = !this.plan.boxes.length || this.plan.height <= this.height;  // else it keeps its room
    },

    /* The number of the file that is looked for among the names of some data, -1 for none. */
    codeOf(data) {
      if (this.match === null) return -1;
      if (!data.matched || data.matched.name !== this.match) data.matched = {name: this.match, code: data.names.indexOf(this.match)};
      return data.matched.code;
    },

    labelOf(data, lane, entry) {
      if (lane.kind === "steps" || lane.kind === "epochs" || lane.kind === "validation") return String(data.entries.offset[entry]);
      if (lane.kind === "waits") return "wait";
      const name = data.entries.name[entry];
      if (name < 0) return "";
      const text = data.names[name];
      return lane.kind === "io" ? text.slice(text.lastIndexOf("/") + 1) : text;
    },

    x(time) { return (time - this.view.low) / (this.view.high - this.view.low) * this.width; },

    time(x) { return this.view.low + (x - this.gutter) / this.width * (this.view.high - this.view.low); },

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
    },

    arrowsOf({lane, slice}) {
      const all = this.model.arrows || [], lanes = this.model.packed.lanes;
      if (lane.kind === "io") return all.filter((a) => lanes[a.lane].rank === lane.rank && a.lane === lane.index && a.read >= slice.start).slice(0, 1);
      return all.filter((a) => lanes[a.to].rank === lane.rank && a.taken > slice.start && a.taken <= slice.end).slice(0, 8);
    },

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
    },

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
    },

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
    },

    /* The part of the run that is in view, on the map. */
    placeBand() {
      const {low, high} = this.model.base, length = high - low;
      const a = (this.view.low - low) / length, b = (this.view.high - low) / length;
      this.band.hidden = b - a >= 1;
      this.band.style.left = `${this.gutter + a * this.width}px`;
      this.band.style.width = `${Math.max((b - a) * this.width, 3)}px`;
    },
  };
})();
