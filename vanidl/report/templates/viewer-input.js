"use strict";
/* Mouse, touch and keys of the trace viewer. */
const TraceInput = (() => {
  const FASTER = 1.25, MOVE = 0.15, DRAG_FROM = 4, SLACK = 3;

  const KEYS = {
    w: (v) => v.zoom(1 / FASTER), s: (v) => v.zoom(FASTER), a: (v) => v.move(-MOVE), d: (v) => v.move(MOVE),
    "+": (v) => v.zoom(1 / FASTER), "-": (v) => v.zoom(FASTER),
    ArrowLeft: (v) => v.next(-1), ArrowRight: (v) => v.next(1),
    ArrowUp: (v) => v.aside(-1), ArrowDown: (v) => v.aside(1),
    f: (v) => v.focusPicked(), Enter: (v) => v.focusPicked(),
    0: (v) => v.show(v.model.base.low, v.model.base.high), Home: (v) => v.show(v.model.base.low, v.model.base.high),
    Escape: (v) => v.pick(null),
  };

  function typing(event) {
    return event.ctrlKey || event.metaKey || event.altKey
      || event.target.closest("input, select, textarea, [contenteditable]");
  }

  function keys(viewer) {
    viewer.main.addEventListener("keydown", (event) => {
      const action = !typing(event) && KEYS[event.key];
      if (!action) return;
      event.preventDefault();
      action(viewer);
    });
    document.addEventListener("keydown", (event) => {
      if (typing(event) || (event.key === "/" && !viewer.find.isConnected)) return;
      const action = {j: () => viewer.toWorst(1), k: () => viewer.toWorst(-1), "/": () => viewer.find.focus()}[event.key];
      if (!action) return;
      event.preventDefault();
      viewer.host.scrollIntoView({block: "nearest"});
      action();
    });
  }

  /* The wheel zooms once the viewer was clicked, or with Ctrl; else the page scrolls. */
  function wheel(viewer) {
    viewer.main.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !viewer.main.contains(document.activeElement)) return;
      const x = event.clientX - viewer.main.getBoundingClientRect().left;
      if (x < viewer.gutter) return;
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        viewer.move((event.deltaX || event.deltaY) / viewer.width);
      } else {
        viewer.zoom(Math.exp(Math.max(Math.min(event.deltaY, 200), -200) * .002), viewer.time(x));
      }
    }, {passive: false});
  }

  /* Dragging sideways zooms to what was dragged over; with Shift, or two fingers, it moves. */
  function drag(viewer, canvas, inLanes) {
    const mark = document.createElement("div");
    mark.className = "tv-drag";
    mark.hidden = true;
    viewer.main.append(mark);
    const touches = new Map();
    let from = null;

    const place = (event) => event.clientX - viewer.main.getBoundingClientRect().left;

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      touches.set(event.pointerId, place(event));
      canvas.setPointerCapture(event.pointerId);
      from = {x: place(event), y: event.clientY, moved: false, view: {...viewer.view},
        pinch: touches.size === 2 ? [...touches.values()] : null};
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) { if (inLanes) hover(viewer, event); return; }
      touches.set(event.pointerId, place(event));
      const x = place(event);
      if (Math.abs(x - from.x) >= DRAG_FROM) from.moved = true;
      if (from.pinch && touches.size === 2) { pinch(viewer, from, [...touches.values()]); return; }
      if (!from.moved) return;
      if (event.shiftKey || event.pointerType === "touch") {
        const by = (from.x - x) / viewer.width * (from.view.high - from.view.low);
        viewer.show(from.view.low + by, from.view.high + by);
        return;
      }
      mark.hidden = false;
      mark.style.left = `${Math.max(Math.min(from.x, x), viewer.gutter)}px`;
      mark.style.width = `${Math.abs(x - from.x)}px`;
    });
    const end = (event) => {
      touches.delete(event.pointerId);
      const began = from;
      if (!touches.size) from = null;
      mark.hidden = true;
      if (!began || began.pinch || event.type === "pointercancel") return;
      const x = place(event);
      if (!began.moved) { if (inLanes) click(viewer, event); viewer.main.focus({preventScroll: true}); return; }
      if (event.shiftKey || event.pointerType === "touch") return;
      viewer.show(viewer.time(Math.min(began.x, x)), viewer.time(Math.max(began.x, x)));
      viewer.main.focus({preventScroll: true});
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => { viewer.tip.hidden = true; });
    canvas.addEventListener("dblclick", () => viewer.show(viewer.model.base.low, viewer.model.base.high));
  }

  function pinch(viewer, from, now) {
    const [a, b] = from.pinch, [c, d] = now, view = from.view;
    const time = (x) => view.low + (x - viewer.gutter) / viewer.width * (view.high - view.low);
    const scale = (time(b) - time(a)) / ((d - c) || 1);
    const low = time(a) - (c - viewer.gutter) * scale;
    if (scale > 0) viewer.show(low, low + viewer.width * scale);
  }

  function slackOf(viewer) { return SLACK / viewer.width * (viewer.view.high - viewer.view.low); }

  function click(viewer, event) {
    const box = viewer.boxAt(event.clientY - viewer.canvas.getBoundingClientRect().top);
    const x = event.clientX - viewer.main.getBoundingClientRect().left;
    if (!box || x < viewer.gutter || !viewer.pickIn(box, viewer.time(x), slackOf(viewer))) viewer.pick(null);
  }

  function hover(viewer, event) {
    const bounds = viewer.main.getBoundingClientRect();
    const x = event.clientX - bounds.left, box = x >= viewer.gutter && viewer.boxAt(event.clientY - viewer.canvas.getBoundingClientRect().top);
    const data = box && viewer.model.dataFor(viewer.view, box.lane.index);
    const track = box && data.byTrack.get(box.key);
    const near = track && TraceData.holds(data, box.lane.index, viewer.view.low, viewer.view.high);
    const piece = near ? TraceData.at(data, track, viewer.time(x), slackOf(viewer)) : -1;
    viewer.tip.hidden = piece < 0;
    if (piece < 0) return;
    const slice = TraceData.entry(data, data.owner[piece]);
    const name = box.lane.kind === "io" && slice.name ? `, ${slice.name.slice(slice.name.lastIndexOf("/") + 1)}` : "";
    viewer.tip.textContent = `${TracePanel.titleOf(viewer.model, box.lane, slice)}${name}: ${TraceView.seconds(slice.end - slice.start)}`;
    viewer.tip.style.left = `${Math.min(x + 12, Math.max(bounds.width - viewer.tip.offsetWidth - 4, 0))}px`;
    viewer.tip.style.top = `${event.clientY - bounds.top + 14}px`;
  }

  /* The map: a press or a drag moves the view there. */
  function map(viewer) {
    const to = (event) => {
      const {low, high} = viewer.model.base;
      const x = event.clientX - viewer.main.getBoundingClientRect().left;
      const time = low + (x - viewer.gutter) / viewer.width * (high - low);
      const half = (viewer.view.high - viewer.view.low) / 2;
      viewer.show(time - half, time + half);
    };
    viewer.map.addEventListener("pointerdown", (event) => { viewer.map.setPointerCapture(event.pointerId); to(event); });
    viewer.map.addEventListener("pointermove", (event) => { if (event.buttons) to(event); });
  }

  function listen(viewer) {
    keys(viewer);
    wheel(viewer);
    drag(viewer, viewer.canvas, true);
    drag(viewer, viewer.top, false);
    map(viewer);
  }

  return {listen};
})();
