"use strict";
/* What is said of a slice, of what is in view, and of what was searched; all as text. */
const TracePanel = (() => {
  const ROWS = 200, ROWS_OF_LANE = 40;
  const {seconds} = TraceView, {bytes} = Units;

  function element(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function button(text, action, label) {
    const node = element("button", "", text);
    node.type = "button";
    if (label) node.setAttribute("aria-label", label);
    node.addEventListener("click", action);
    return node;
  }

  function exact(ns) { return `${(ns / 1e9).toFixed(6)} s`; }

  /* Slices of a rank's lane of some kind that overlap a time. */
  function during(model, rank, kind, low, high) {
    const index = model.packed.lanes.findIndex((l) => l.rank === rank && l.kind === kind);
    if (index < 0) return [];
    const found = [];
    for (const track of model.base.tracks) {
      if (track.lane !== index) continue;
      for (let i = TraceData.from(model.base, track, low); i < track.high && model.base.start[i] < high; i++) {
        found.push(TraceData.entry(model.base, model.base.owner[i]));
      }
    }
    return found;
  }

  function shareOf(slices, low, high) {
    return slices.reduce((sum, s) => sum + Math.max(Math.min(s.end, high) - Math.max(s.start, low), 0), 0);
  }

  /* The arrow of the batch that a read of a worker belongs to, null where none is known. */
  function batchOf(model, lane, slice) {
    if (!model.arrows || slice.write) return null;
    let before = -Infinity;
    for (const arrow of model.arrows) {
      if (arrow.lane !== lane.index) continue;
      if (arrow.read >= slice.start) {
        return before > -Infinity || arrow.read === slice.start ? arrow : null;
      }
      before = arrow.read;
    }
    return null;
  }

  function waitedFor(model, lane, slice) {
    const waits = during(model, lane.rank, "waits", slice.start, slice.end);
    const shared = shareOf(waits, slice.start, slice.end);
    if (!waits.length) return model.hasLane(lane.rank, "waits") ? "nobody" : "not recorded";
    const whole = seconds(waits.reduce((sum, w) => sum + w.end - w.start, 0));
    return `${model.packed.ranks[lane.rank]}, ${seconds(shared)} of it (input wait of ${whole})`;
  }

  function stepsOf(model, lane, low, high) {
    const steps = during(model, lane.rank, "steps", low, high).map((s) => s.offset);
    if (!steps.length) return model.hasLane(lane.rank, "steps") ? "in no recorded step" : "not recorded";
    return steps.length > 3 ? `${steps[0]} to ${steps[steps.length - 1]}` : steps.join(", ");
  }

  function ofOperation(model, lane, s) {
    const length = s.end - s.start;
    const rows = [
      ["file", s.name === null ? "its name is not in this page" : s.name],
      ["operation", s.write ? "write" : "read"],
      ["offset", s.offset < 0 ? "not recorded" : s.offset.toLocaleString("en")],
      ["size", `${bytes(s.nbytes)} (${s.nbytes.toLocaleString("en")} bytes)`],
      ["start", exact(s.start)], ["duration", seconds(length)],
      ["speed", length > 0 ? `${bytes(s.nbytes / length * 1e9)}/s` : "no time passed"],
      ["during step", stepsOf(model, lane, s.start, s.end)],
      ["who waited for it", waitedFor(model, lane, s)],
    ];
    if (model.packed.byFate) {
      const fates = s.fates.map(([fate, ns]) => `${model.packed.palette.fates[fate].label}${s.fates.length > 1 ? " " + seconds(ns) : ""}`);
      rows.push(["what became of it", fates.join(", ")]);
    }
    const batch = batchOf(model, lane, s);
    if (batch) rows.push(["its batch", `taken at ${exact(batch.taken)}, step ${stepsOf(model, model.packed.lanes[batch.to], batch.taken - 1, batch.taken)}`]);
    rows.push(["process", model.packed.processes[s.process] || "not recorded"]);
    if (s.thread >= 0) rows.push(["thread", String(s.thread)]);
    return rows;
  }

  function ofSpan(model, lane, s) {
    const rows = [["start", exact(s.start)], ["duration", seconds(s.end - s.start)]];
    if (s.offset >= 0) rows.unshift([lane.kind === "epochs" ? "epoch" : "step", String(s.offset)]);
    if (s.name) rows.push(["name", s.name]);
    if (lane.kind === "steps") {
      const waits = during(model, lane.rank, "waits", s.start, s.end);
      const known = model.hasLane(lane.rank, "waits");
      rows.push(["input wait in it", known ? seconds(shareOf(waits, s.start, s.end)) : "not recorded"]);
      const batches = (model.arrows || []).filter((a) => model.packed.lanes[a.to].rank === lane.rank && a.taken > s.start && a.taken <= s.end);
      for (const a of batches) rows.push(["its batch was read by", `${model.packed.lanes[a.lane].label}, last read at ${exact(a.read)}`]);
    } else {
      rows.push(["during step", stepsOf(model, lane, s.start, s.end)]);
    }
    return rows;
  }

  function titleOf(model, lane, s) {
    if (lane.kind === "io") return `${s.write ? "Write" : "Read"} of ${bytes(s.nbytes)}`;
    if (lane.kind === "steps") return `Step ${s.offset}`;
    return {waits: "Input wait", epochs: "Epoch", communication: "Collective"}[lane.kind] || s.name || lane.label;
  }

  /* Fills the side panel with what is known of a slice. */
  function show(host, model, picked, actions) {
    host.replaceChildren();
    host.hidden = !picked;
    if (!picked) return;
    const {lane, slice} = picked;
    host.append(element("h4", "", titleOf(model, lane, slice)));
    const list = element("dl");
    const rows = lane.kind === "io" ? ofOperation(model, lane, slice) : ofSpan(model, lane, slice);
    rows.unshift(["lane", `${model.packed.ranks[lane.rank]}, ${lane.label}`]);
    for (const [name, value] of rows) {
      const pair = element("div");
      pair.append(element("dt", "", name), element("dd", "", value));
      list.append(pair);
    }
    const tools = element("p", "tv-tools");
    tools.append(button("zoom to it", actions.focus), button("previous", () => actions.step(-1)),
      button("next", () => actions.step(1)), button("close", actions.close));
    host.append(list, tools);
  }

  /* Rows of the table of what is in view: slices, or the sum of a lane where bins are shown. */
  function inView(model, view, boxes) {
    const rows = [];
    let more = 0;
    for (const box of boxes) {
      const {lane} = box, data = model.dataFor(view, box.lane.index), where = `${model.packed.ranks[lane.rank]}, ${lane.label}`;
      if (!TraceData.holds(data, lane.index, view.low, view.high) && data.bins) {
        const busy = model.busyOf(data, box.key, view);
        if (busy) rows.push([where, "busy in these bins", null, [busy, seconds(busy)], null, null]);
        continue;
      }
      const track = data.byTrack.get(box.key);
      if (!track) continue;
      let last = -1, own = 0;
      for (let i = TraceData.from(data, track, view.low); i < track.high && data.start[i] < view.high; i++) {
        if (data.owner[i] === last) continue;
        last = data.owner[i];
        if (rows.length >= ROWS || own >= ROWS_OF_LANE) { more++; continue; }
        own++;
        const s = TraceData.entry(data, last);
        const what = lane.kind === "io" ? `${s.write ? "write" : "read"} ${s.name || "unnamed file"}` : titleOf(model, lane, s);
        rows.push([where, what, [s.start, exact(s.start)], [s.end - s.start, seconds(s.end - s.start)],
          lane.kind === "io" ? [s.nbytes, bytes(s.nbytes)] : null,
          lane.kind === "io" && s.offset >= 0 ? [s.offset, s.offset.toLocaleString("en")] : null]);
      }
    }
    const columns = [["lane", true], ["what", true], ["start", false], ["duration", false], ["size", false], ["offset", false]];
    const all = rows.length + more;
    return {columns, rows, cut: more ? `${rows.length} of ${all.toLocaleString("en")} slices in view` : ""};
  }

  return {element, button, show, inView, titleOf, during, seconds, bytes};
})();
