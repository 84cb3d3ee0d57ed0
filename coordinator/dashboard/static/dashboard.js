// All pages work without this file. It shows instants in the viewer's time zone, opens acts in a dialog, draws charts,
// says whether the page is live, and knows some keys.
"use strict";

const local = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" }); // 2026-11-28 13:00:00
const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

function dress(within) {
  for (const time of within.querySelectorAll("time:not(.ago)")) time.textContent = local.format(new Date(time.dateTime));
  within.querySelectorAll(".chart:not([data-drawn])").forEach(draw);
}

// Charts: the server says series as JSON at data-src; without this script its own small picture stays.
async function draw(place) {
  place.dataset.drawn = "";
  const answer = await fetch(place.dataset.src, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const { labels, columns } = await answer.json();
  const style = getComputedStyle(place), ink = style.getPropertyValue("--muted"), grid = style.getPropertyValue("--edge");
  if (columns[0].length < 2) return; // one point is no line
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui" };
  const time = {
    ...axis, space: 90, incrs: [60, 300, 600, 1800, 3600, 7200, 10800, 21600],
    values: (_, splits) => splits.map(at => minute.format(new Date(at * 1000))),
  };
  const clock = { label: "Time", value: (_, at) => at == null ? "–" : local.format(new Date(at * 1000)) };
  const scales = { x: { range: (_, first, last) => [Math.min(first, last - 600), last] }, y: { range: (_, __, top) => [0, (top || 1) * 1.1] } };
  const series = labels.map(([label, kind]) => ({
    label, width: 2, stroke: style.getPropertyValue(`--${kind}`), points: { show: false },
    value: (_, number) => number == null ? "–" : number.toFixed(1),
  }));
  place.replaceChildren();
  const size = () => ({ width: place.clientWidth, height: 180 });
  const chart = new uPlot({ ...size(), scales, series: [clock, ...series], axes: [time, { ...axis, size: 44 }] }, columns, place);
  new ResizeObserver(() => chart.setSize(size())).observe(place);
}

// The form of an act opens above the page.
const dialog = document.getElementById("dialog");
document.addEventListener("htmx:after:swap", event => {
  dress(document);
  if (dialog.querySelector("#act") && !dialog.open) dialog.showModal();
});
dialog.addEventListener("close", () => dialog.replaceChildren());
document.addEventListener("click", event => {
  if (event.target === dialog || (dialog.open && event.target.closest("[data-close], .done ~ p a"))) {
    event.preventDefault();
    dialog.close();
  }
});

// Instants in filters are the viewer's, as those on the page; an address has UTC.
const whole = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?$/;
for (const input of document.querySelectorAll("[data-instant]")) {
  const sent = new Date(input.value);
  input.placeholder = "1h, or a time";
  if (input.value.endsWith("Z") && !isNaN(sent)) input.value = local.format(sent);
  input.form.addEventListener("submit", () => {
    const [, day, time] = input.value.trim().match(whole) ?? [];
    const typed = new Date(`${day}T${time ?? "00:00"}`);
    if (!isNaN(typed)) input.value = typed.toISOString();
  });
}

// Filters apply themselves.
for (const form of document.querySelectorAll("form[data-auto]")) {
  form.addEventListener("change", event => event.target.matches("select") && form.requestSubmit());
}

// Whether the page is live.
const pulse = document.querySelector("[data-pulse]");
const says = words => { pulse.hidden = false; pulse.textContent = words; pulse.classList.toggle("off", words !== "live"); };
document.addEventListener("htmx:sse:after:connection", () => says("live"));
document.addEventListener("htmx:sse:error", () => says("offline"));
document.addEventListener("htmx:sse:close", () => says("offline"));
document.addEventListener("visibilitychange", () => document.hidden && says("paused"));

// Light, dark, as the system.
const themes = document.querySelector("[data-theme-switch]");
themes.hidden = false;
themes.addEventListener("click", () => {
  const root = document.documentElement, next = { undefined: "light", light: "dark", dark: undefined }[root.dataset.theme];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  try { localStorage.setItem("flower-theme", next || "system"); } catch {}
});

// On a narrow screen the bar is a line that scrolls.
const bar = document.querySelector("nav"), current = bar.querySelector("[aria-current], .within");
if (current) bar.scrollLeft = current.offsetLeft - bar.clientWidth / 2;

// Keys: / searches, g and a letter goes to a page of the bar, Escape leaves a field.
let going = 0;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) return event.key === "Escape" && event.target.blur();
  if (event.key === "/") { event.preventDefault(); return document.querySelector(".find input").focus(); }
  if (event.key === "g") { going = Date.now(); return; }
  if (Date.now() - going < 1500) {
    const links = [...document.querySelectorAll("nav a:not(.elsewhere)")];
    const begin = links.filter(link => link.textContent.trim().toLowerCase().startsWith(event.key.toLowerCase()));
    const here = begin.findIndex(link => link.matches("[aria-current], .within"));
    begin[(here + 1) % begin.length]?.click(); // of several, the one behind this page
  }
  going = 0;
});

dress(document);
