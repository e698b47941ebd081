"use strict";
/* Which slice of the trace viewer is selected, and the way from one to the next. */
const TraceSelect = {
  pick(picked) {
    this.picked = picked;
    TracePanel.show(this.panel, this.model, picked, {
      focus: () => this.focusPicked(), step: (by) => this.next(by), close: () => { this.pick(null); this.main.focus(); }});
    if (this.main.clientWidth !== Math.round(this.width + this.gutter)) this.resize();
    this.request();
  },

  pickAt(rank, kind, time) {
    const box = this.plan.boxes.find((b) => b.lane.rank === rank && b.lane.kind === kind);
    if (box) this.pickIn(box, time, 0);
  },

  pickIn(box, time, slack) {
    const data = this.model.dataFor(this.view, box.lane.index), track = data.byTrack.get(box.key);
    const piece = track ? TraceData.at(data, track, time, slack) : -1;
    if (piece < 0) return false;
    this.pick({box, lane: box.lane, slice: TraceData.entry(data, data.owner[piece]), piece});
    return true;
  },

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
  },

  /* The selection in the lane above or below. */
  aside(by) {
    const boxes = this.plan.boxes;
    let i = this.picked ? boxes.findIndex((b) => b.key === this.picked.box.key) + by : 0;
    const slack = this.view.high - this.view.low;
    const time = this.picked ? Math.min(Math.max(this.picked.slice.start, this.view.low), this.view.high) : this.view.low;
    for (; i >= 0 && i < boxes.length; i += by) {
      if (this.pickIn(boxes[i], time, slack)) { this.reveal(boxes[i]); return; }
    }
  },

  reveal(box) {
    const top = this.scroll.scrollTop;
    if (box.y < top) this.scroll.scrollTop = Math.max(box.y - 30, 0);
    else if (box.y + box.height > top + this.height) this.scroll.scrollTop = box.y + box.height - this.height + 10;
  },

  focusPicked() {
    if (!this.picked) return;
    const {start, end} = this.picked.slice, margin = Math.max(.25 * (end - start), 50);
    this.show(start - margin, end + margin);
  },

  boxAt(y) {
    const at = y + this.scroll.scrollTop;
    return this.plan.boxes.find((b) => at >= b.y - 1 && at <= b.y + b.height + 1);
  },
};
