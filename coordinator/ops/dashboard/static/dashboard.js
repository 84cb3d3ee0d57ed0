// All pages work without this file. It shows instants in the zone that the viewer chose, opens acts in a dialog, draws
// charts, says whether the page is live, and knows some keys.
"use strict";

const kept = { // what this browser remembers, where it may
  read: name => { try { return localStorage.getItem(name); } catch { return null; } },
  write: (name, value) => { try { localStorage.setItem(name, value); } catch {} },
};

// One zone for all that is shown and typed: the viewer's own, UTC, or that of the server. Addresses have UTC.
const zones = document.querySelector("[data-zone-switch]"), DAY = 86400e3;
let clock, minute, weekday;

function setZone() {
  const chosen = kept.read("coordinator-zone");
  zones.value = [...zones.options].some(one => one.value === chosen) ? chosen : "local";
  const timeZone = { local: undefined, UTC: "UTC", server: zones.dataset.zoneSwitch }[zones.value];
  try {
    clock = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone }); // 2026-11-28 13:00:00
  } catch { // this browser does not know the server's zone
    zones.querySelector("[value=server]").remove();
    return setZone();
  }
  minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone });
  weekday = new Intl.DateTimeFormat("en", { weekday: "short", timeZone });
  zones.title = `Times are in ${clock.resolvedOptions().timeZone}`;
}

// The instant, in ms, at which a clock in the zone shows this day and time; NaN if none does. Twice, since the first
// guess may lie behind a change of the clocks.
function instant(day, time) {
  const wanted = Date.parse(`${day}T${time}Z`);
  const shown = at => Date.parse(clock.format(at).replace(" ", "T") + "Z") + at % 1000;
  const guess = isNaN(wanted) ? NaN : 2 * wanted - shown(wanted);
  return isNaN(guess) ? NaN : guess + wanted - shown(guess);
}

// What was typed in the zone, as an address has it; what is no instant there is left as it is. In filters, which look
// back, days and times of day are instants, too.
function typed({ value, dataset }) {
  const text = value.trim(), now = Date.now(), day = at => clock.format(at).slice(0, 10);
  const utc = at => isNaN(at) ? text : new Date(at).toISOString();
  const [, on, at] = text.match(/^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?$/) ?? [];
  if (on && at) return utc(instant(on, at));
  if (dataset.instant) return text;
  const midnight = instant(day(now), "00:00"), yesterday = day(midnight - DAY / 2);
  if (on) return utc(instant(on, "00:00"));
  if (/^today$/i.test(text)) return utc(midnight);
  if (/^yesterday$/i.test(text)) return utc(instant(yesterday, "00:00"));
  if (!/^\d?\d:\d\d(:\d\d)?$/.test(text)) return text;
  const time = text.padStart(text.indexOf(":") < 2 ? text.length + 1 : 0, "0"), last = instant(day(now), time);
  return utc(last <= now ? last : instant(yesterday, time));
}

const inputs = within => [...within.querySelectorAll("input[data-instant]")];

function dress(within) {
  for (const time of within.querySelectorAll("time")) {
    const at = new Date(time.dateTime), shown = clock.format(at), utc = time.dateTime.slice(0, 19).replace("T", " ") + "Z";
    if (time.matches(".ago")) time.title = shown + "Z" === utc ? utc : `${shown}, ${utc}`;
    else time.textContent = time.matches(".dated") ? `${weekday.format(at)} ${shown}` : shown;
  }
  for (const input of inputs(within)) {
    const sent = new Date(input.value);
    input.placeholder = input.dataset.instant ? `such as ${clock.format(Date.now()).slice(0, 16)}` : "1h, 10:00, today";
    if (/T.*(Z|[+-]\d\d:\d\d)$/.test(input.value) && !isNaN(sent)) input.value = clock.format(sent);
  }
  if (navigator.clipboard) within.querySelectorAll(".copy").forEach(button => { button.hidden = false; });
  within.querySelectorAll(".chart:not([data-drawn])").forEach(draw);
}

setZone();
zones.hidden = false;
zones.addEventListener("change", () => {
  const asked = inputs(document).map(input => [input, typed(input)]);
  kept.write("coordinator-zone", zones.value);
  setZone();
  for (const [input, value] of asked) input.value = value;
  dress(document);
  for (const chart of charts) chart.redraw(false, true);
});
document.addEventListener("submit", event => {
  for (const input of inputs(event.target)) input.value = typed(input);
}, true);

// Charts: the server says series as JSON at data-src; without this script its own small picture stays.
const charts = [], RANGES = { "1 h": 3600, "6 h": 6 * 3600, "1 d": 24 * 3600 };
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
  const amount = { ...axis, size: (_, labels) => Math.max(44, 18 + 8 * Math.max(0, ...(labels ?? []).map(one => one.length))) };
  const clocked = { label: "Time", value: (_, at) => at == null ? "–" : clock.format(new Date(at * 1000)) };
  let range = kept.read("coordinator-range") in RANGES ? kept.read("coordinator-range") : "1 d";
  const from = (first, last) => Math.max(Math.min(first, last - 600), last - RANGES[range]);
  const scales = { x: { range: (_, first, last) => [from(first, last), last] }, y: { range: (_, __, top) => [0, (top || 1) * 1.1] } };
  const series = labels.map(([label, kind]) => ({
    label, width: 2, stroke: style.getPropertyValue(`--${kind}`), points: { show: false },
    value: (_, number) => number == null ? "–" : number.toLocaleString(undefined, { maximumFractionDigits: 1 }),
  }));
  const buttons = Object.keys(RANGES).map(name => Object.assign(document.createElement("button"), { type: "button", textContent: name }));
  const press = () => buttons.forEach(one => one.setAttribute("aria-pressed", one.textContent === range));
  const group = Object.assign(document.createElement("div"), { className: "ranges", role: "group", ariaLabel: "The last" });
  group.append(...buttons);
  place.replaceChildren(group);
  press();
  const size = () => ({ width: place.clientWidth - 24, height: 180 });
  const chart = new uPlot({ ...size(), scales, series: [clocked, ...series], axes: [time, amount] }, columns, place);
  charts.push(chart);
  group.addEventListener("click", event => {
    if (!event.target.matches("button")) return;
    kept.write("coordinator-range", range = event.target.textContent);
    press();
    chart.setData(columns);
  });
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

// Ids are copied by a click.
document.addEventListener("click", async event => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
});

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
  kept.write("flower-theme", next || "system");
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
