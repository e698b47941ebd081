"use strict";
/* Steps and files by name or number, and what the trace viewer says in its status line. */
const TraceSearch = (() => {
  const {seconds, instant} = TraceView;

  return {
    search() {
      const words = this.find.value.trim();
      this.match = null;
      if (!words) { this.say(""); this.request(); return; }
      if (/^\d+$/.test(words) && this.toStep(Number(words))) return;
      this.toFile(words.toLowerCase());
    },

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
    },

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
    },

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
    },

    say(text) { this.said = text; this.tell(); },

    tell() {
      const step = (this.view.high - this.view.low) / 1000;
      const {held, total, lanes} = this.model.packed;
      const range = `${instant(this.view.low, step)} s to ${instant(this.view.high, step)} s, ${seconds(this.view.high - this.view.low)} in view.`;
      const noun = this.slices === 1 ? "slice" : "slices";
      const drawn = lanes.length && (held === total || this.model.packed.server || this.slices) ? ` ${this.slices.toLocaleString("en")} ${noun} drawn.` : "";
      this.status.textContent = `${this.said ? this.said + " " : ""}${range}${drawn}`;
    },
  };
})();
