"use strict";
/* The time and rank in view as part of the address. */
const TraceAddress = (() => {
  const {instant} = TraceView;

  return {
    writeAddress() {
      const step = (this.view.high - this.view.low) / 1000;
      const parts = this.isWhole() ? [] : [`t=${instant(this.view.low, step)}-${instant(this.view.high, step)}`];
      if (this.rank !== null) parts.push(`rank=${this.rank}`);
      const wanted = parts.length ? `#${parts.join("&")}` : "";
      const own = /^#(t|rank)=/.test(location.hash);
      if (location.hash === wanted || (!wanted && !own)) return;
      history.replaceState(null, "", wanted || location.pathname + location.search);
    },

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
    },
  };
})();
