// The tab "I/O": a list of runs, the page of the chosen one or a comparison, a link to Perfetto.
const AGAIN_MS = 500;
const LOOK_MS = 30_000; // how often TensorBoard itself looks for new data
const PERFETTO = "https://ui.perfetto.dev";
const STYLE = `
  body { margin: 0; font: 14px/1.4 system-ui, sans-serif; height: 100vh; display: flex;
         flex-direction: column; color-scheme: light dark; }
  nav { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; padding: 8px 12px;
        border-bottom: 1px solid #8886; }
  h1 { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); }
  main { flex: 1; display: flex; flex-direction: column; }
  select { max-width: 40ch; } iframe { flex: 1; border: 0; width: 100%; }
  output { padding: 12px; white-space: pre-wrap; } output:empty { display: none; }
`;
let asked = 0; // a later choice overtakes an earlier one

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function address(kind, runs) {
  return `./${kind}?${new URLSearchParams(runs.map((run) => ["run", run]))}`;
}

// Asks until the answer is there; undefined once something else was chosen.
async function answered(kind, runs, say) {
  const mine = ++asked;
  const began = Date.now();
  for (;;) {
    const response = await fetch(address(kind, runs));
    if (mine !== asked) return undefined;
    if (response.status !== 202) return response;
    say(`Reading ${runs.join(" and ")}: ${Math.round((Date.now() - began) / 1000)} s`);
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

// Whether it could be opened: a browser lets a page do so for some seconds after a click.
function openInPerfetto(buffer, title) {
  const other = window.open(PERFETTO);
  if (!other) return false;
  const ping = setInterval(() => other.postMessage("PING", PERFETTO), 100);
  window.addEventListener("message", function pong(event) {
    if (event.origin !== PERFETTO || event.data !== "PONG") return;
    clearInterval(ping);
    window.removeEventListener("message", pong);
    other.postMessage({ perfetto: { buffer, title } }, PERFETTO);
  });
  return true;
}

// Says what there is to choose from; what was chosen stays so while it is there.
function offer(select, runs, ...first) {
  const chosen = select.value;
  const options = runs.map((run) => element("option", { value: run, textContent: run }));
  select.replaceChildren(...first, ...options);
  if (runs.includes(chosen)) select.value = chosen;
}

export async function render() {
  document.head.append(element("style", { textContent: STYLE }));
  document.documentElement.lang = "en"; // of TensorBoard's own page for the tab, which has none
  document.title = "I/O";
  const choice = element("select", { id: "run", title: "Run" });
  const other = element("select", { id: "other", title: "Compare with" });
  const message = element("output", { id: "message" });
  const frame = element("iframe", { id: "page", title: "I/O of the run" });
  const timeline = element("button", { id: "timeline", textContent: "Open timeline in Perfetto" });
  const say = (text) => { message.textContent = text; };
  let runs = [];
  let shown = ""; // the state of the files that the page is of

  function chosen() {
    const both = other.value && other.value !== choice.value;
    return both ? [other.value, choice.value] : [choice.value];
  }

  async function stateOf(names) {
    const response = await fetch(address("state", names));
    return response.ok ? response.text() : "";
  }

  // The page of what is chosen; one of the same run that changed stays until the new one is there.
  async function show(changed = false) {
    const names = chosen();
    const kind = names.length > 1 ? "comparison" : "report";
    if (!changed) frame.removeAttribute("src");
    shown = await stateOf(names);
    const response = await answered(kind, names, say);
    if (!response) return;
    say(response.ok ? "" : await response.text());
    if (!response.ok) return;
    const at = changed ? frame.contentWindow.scrollY : 0;
    frame.onload = () => frame.contentWindow.scrollTo(0, at);
    frame.src = address(kind, names);
  }

  async function list() {
    const found = await (await fetch("./runs")).json();
    if (String(found) === String(runs)) return false;
    runs = found;
    const before = chosen().join();
    offer(choice, runs);
    offer(other, runs, element("option", { value: "", textContent: "nothing" }));
    return chosen().join() !== before;
  }

  async function look() {
    if (document.hidden) return;
    if (await list()) await show();
    else if (runs.length && (await stateOf(chosen())) !== shown) await show(true);
  }

  choice.onchange = other.onchange = () => show();
  timeline.onclick = async () => {
    const response = await answered("timeline", [choice.value], say);
    if (!response) return;
    say(response.ok ? "" : await response.text());
    if (response.ok && !openInPerfetto(await response.arrayBuffer(), choice.value)) {
      say("The browser opened no window: allow it, or press again, as the timeline is ready now.");
    }
  };
  document.body.append(
    element("nav", {},
      element("label", {}, "Run ", choice),
      element("label", {}, "compared with ", other),
      timeline),
    element("main", {}, element("h1", { textContent: "I/O of runs" }), message, frame));
  await look();
  if (!runs.length) {
    say("No run with I/O lies below the log folder. Record one: vanidl record -o RUN -- COMMAND");
  }
  setInterval(look, LOOK_MS);
  document.addEventListener("visibilitychange", look);
}
