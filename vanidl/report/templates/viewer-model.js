"use strict";
/* Everything that the trace viewer knows of a run: what the page holds, and, where the page is
   served from the run itself, what it fetched for the time in view. */
const TraceModel = (() => {
  const PAD = 0.5;  // of the view, fetched at both sides of it

  async function load(packed) {
    const base = await TraceData.decode(packed);
    const model = {packed, base, live: null, arrows: null, bandwidth: null};
    if (packed.arrows) model.arrows = rows(await TraceData.columns(packed.arrows));
    if (packed.bandwidth) {
      model.bandwidth = {...packed.bandwidth, ...await TraceData.columns(packed.bandwidth)};
    }
    model.hasLane = (rank, kind) => packed.lanes.some((l) => l.rank === rank && l.kind === kind);
    model.dataFor = (view) => covers(model.live, view) ? model.live : base;
    model.busyOf = busyOf;
    model.fetch = (view, width, lanes) => fetched(model, view, width, lanes);
    return model;
  }

  function rows(columns) {
    const found = Array.from(columns.lane, (lane, i) => ({
      lane, read: columns.read[i], to: columns.to[i], taken: columns.taken[i]}));
    return found.sort((a, b) => a.read - b.read);
  }

  /* Whether fetched slices hold a view, in bins that are hardly wider than those of the view. */
  function covers(live, view) {
    return live !== null && live.low <= view.low && live.high >= view.high && live.rank === view.rank
      && (live.exact || (view.high - view.low) * (1 + 2 * PAD) * 1.5 > live.high - live.low);
  }

  /* Busy nanoseconds of a track in a view, from its bins. */
  function busyOf(data, key, view) {
    let sum = 0;
    for (const {place, busy} of data.bins.series.get(key) || []) {
      for (let i = 0; i < place.length; i++) {
        const start = data.bins.low + place[i] * data.bins.width;
        const inside = Math.min(start + data.bins.width, view.high) - Math.max(start, view.low);
        if (inside > 0) sum += busy[i] * inside / data.bins.width;
      }
    }
    return sum;
  }

  /* Slices around a view from the server of `vanidl view`; null where the page has them all. */
  async function fetched(model, view, width, lanes) {
    if (!model.packed.server || model.packed.held === model.packed.total || covers(model.live, view)) return false;
    const pad = PAD * (view.high - view.low);
    const low = Math.max(Math.floor(view.low - pad), model.base.low);
    const high = Math.min(Math.ceil(view.high + pad), model.base.high);
    const query = `t0=${low}&t1=${high}&width=${Math.ceil(width * (1 + 2 * PAD))}&lanes=${lanes.join(".")}`;
    const answer = await fetch(`slices?${query}`, {cache: "no-store"});
    if (!answer.ok) throw new Error(`the server of vanidl view answered ${answer.status}`);
    const packed = await answer.json();
    const live = await TraceData.decode({...packed, low, high});
    for (const lane of model.base.whole) if (!live.whole.has(lane)) keep(live, model.base, lane);
    live.exact = lanes.every((lane) => live.whole.has(lane));
    live.rank = view.rank;
    Object.assign(model.packed.processes, packed.processes);
    model.live = live;
    return true;
  }

  return {load};
})();
