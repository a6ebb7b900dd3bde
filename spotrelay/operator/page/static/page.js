// The chart of prices, the form that tries a service, and a line when `spotrelay ui` itself doesn't answer. All else comes as HTML.
"use strict";
(() => {
  const AGAIN_MS = 60_000; // prices are asked for every five minutes
  const SOON_MS = 2_000; // until there are any
  const LOST_AFTER = 2; // one answer may be late
  const HEIGHT = 260;
  // Apart for those who can't tell red from green, too (after Okabe and Ito); without colours, by the dashes.
  const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#9a8b00", "#7f7f7f"];
  const DASHES = [[], [9, 3], [3, 2], [12, 3, 3, 3], [18, 5], [6, 3, 2, 3, 2, 3], [2, 3], [18, 3, 3, 3, 3, 3]];
  const NUMBER_PX = 12; // each line has its number at its end
  const box = document.getElementById("chart");
  let found = null;
  let plot = null;

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = (_, value) => (value == null ? "" : value.toFixed(4));

  // On-demand costs several times as much: drawn, it would flatten the lines.
  const label = (pool, at) => `${at + 1} ${pool.name}` + (pool.on_demand_usd == null ? "" : `, on demand ${shown(null, pool.on_demand_usd)}`);

  function numbered(u) {
    const size = NUMBER_PX * devicePixelRatio;
    u.ctx.save();
    u.ctx.font = `600 ${size}px system-ui, sans-serif`;
    u.ctx.fillStyle = style("--ink");
    u.ctx.textAlign = "left";
    u.ctx.textBaseline = "middle";
    found.pools.forEach((pool, at) => u.ctx.fillText(at + 1, u.bbox.left + u.bbox.width + size / 4, u.valToPos(pool.number_at, "y", true)));
    u.ctx.restore();
  }

  function options(width) {
    const axis = { stroke: style("--quiet"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line") } };
    const lines = found.pools.map((pool, at) => ({
      label: label(pool, at), stroke: COLORS[at], dash: DASHES[at], width: 2, value: shown,
      paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
    }));
    return {
      width, height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      padding: [null, NUMBER_PX + 4, null, null],
      hooks: { draw: [numbered] },
      scales: { y: { range: found.bounds } },
      axes: [{ ...axis, values: [[3600, "{HH}:{mm}", "\n{MMM} {D}", null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1]] }, { ...axis, size: 56 }],
      series: [{ label: "Time", value: "{MMM} {D} {HH}:{mm} UTC" }, ...lines],
    };
  }

  function draw() {
    if (!found || !found.pools.length) return;
    document.getElementById("chart-none").hidden = true;
    plot?.destroy();
    box.style.display = "block";
    const inner = box.clientWidth - 16;
    const data = [found.times, ...found.pools.map((p) => p.usd)];
    plot = new uPlot(options(inner), data, box);
    box.dataset.points = String(found.times.length);
  }

  async function load() {
    let wait = SOON_MS;
    try {
      const answer = await fetch(box.dataset.from, { headers: { Accept: "application/json" } });
      const news = answer.ok ? await answer.json() : null;
      if (news && news.pools.length) {
        found = news;
        draw();
        wait = AGAIN_MS;
      }
    } catch {
      // The line below says so.
    }
    setTimeout(load, wait);
  }

  if (box) {
    load();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth !== width) {
        width = innerWidth;
        draw();
      }
    });
  }

  const PAUSE_MS = 500; // between requests that are sent again and again
  const seconds = (value) => (value == null ? "?" : `${value.toFixed(value < 10 ? 2 : 0)} s`);

  // One request: shows the answer as it comes, and returns its end.
  async function send(form, shown, said, stop) {
    const sent = Object.fromEntries(new FormData(form));
    const answer = await fetch(form.dataset.to, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sent), signal: stop.signal,
    });
    if (!answer.ok) return { problem: (await answer.json()).problem };
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let who = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return { problem: "spotrelay ui ended before the answer did" };
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const event of lines.map((text) => JSON.parse(text))) {
        if ("pieces" in event) return { ...event, who };
        if ("text" in event) shown.append(event.text);
        else {
          who = event.replica ? ` by ${event.replica}` : "";
          said.textContent = `${event.status}${who} after ${seconds(event.after_s)}`;
        }
      }
    }
  }

  function sum(end) {
    if (end.problem) return end.problem;
    const speed = end.per_s ? `, ${end.per_s.toFixed(1)} a second` : "";
    return `Answered${end.who}: the first piece after ${seconds(end.first_s)}, ${end.pieces} pieces${speed}, all after ${seconds(end.after_s)}. A piece is a token or a few.`;
  }

  async function attempt(form) {
    const [shown, said] = [form.querySelector(".answer"), form.querySelector(".told")];
    const [button, again, end] = [form.querySelector("button"), form.elements.again, form.elements.stop];
    const stop = new AbortController();
    const counts = { answered: 0, failed: 0 };
    end.onclick = () => stop.abort();
    button.disabled = true;
    end.hidden = shown.hidden = false;
    do {
      shown.replaceChildren();
      let found;
      try {
        found = await send(form, shown, said, stop);
      } catch (error) {
        found = { problem: stop.signal.aborted ? "Stopped." : `spotrelay ui doesn't answer: ${error.message}` };
      }
      if (!stop.signal.aborted) counts[found.problem ? "failed" : "answered"] += 1;
      const all = counts.answered + counts.failed;
      said.textContent = sum(found) + (all > 1 ? ` Of ${all} requests, ${counts.failed} failed.` : "");
      said.classList.toggle("problem", Boolean(found.problem) && !stop.signal.aborted);
      if (again.checked && !stop.signal.aborted) await new Promise((go) => setTimeout(go, PAUSE_MS));
    } while (again.checked && !stop.signal.aborted);
    button.disabled = false;
    end.hidden = true;
  }

  document.addEventListener("submit", (event) => {
    if (!event.target.dataset.to) return;
    event.preventDefault();
    attempt(event.target);
  });

  const line = document.getElementById("lost");
  let failures = 0;
  let since = new Date();
  document.addEventListener("htmx:after:swap", () => {
    failures = 0;
    since = new Date();
    line.hidden = true;
  });
  document.addEventListener("htmx:error", () => {
    failures += 1;
    if (failures >= LOST_AFTER && line.hidden) {
      line.textContent = `spotrelay ui doesn't answer: what is shown is of ${since.toISOString().slice(11, 19)} UTC. Start it again, and this page goes on.`;
      line.hidden = false;
    }
  });
})();
