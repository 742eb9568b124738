// Every part of the laboratory in a real browser: node test.mjs http://127.0.0.1:8700/ [--screenshots DIR]
// Each tour to its end, each kind of button in Play, every trap, no error in the console, accessibility, and frame times.

import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const base = process.argv[2];
const shots = process.argv.includes("--screenshots") ? process.argv[process.argv.indexOf("--screenshots") + 1] : undefined;
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: process.env.BROWSER || "/usr/bin/chromium", args: flags });
const problems = [];
let checks = 0;

function expect(condition, what) {
  checks++;
  if (!condition) problems.push(what);
}

/** A page whose errors are problems. `quiet` parts may answer with an error on purpose. */
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, acceptDownloads: true, bypassCSP: true, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  // A page that is left asks for its icon once more, from nowhere.
  const counts = (message) => message.type() === "error" && page.url() !== "about:blank";
  page.on("console", (message) => counts(message) && problems.push(`console: ${message.text()} at ${page.url()}`));
  page.on("pageerror", (error) => problems.push(`error: ${error.message} at ${page.url()}`));
  return page;
}

async function go(page, hash) {
  await page.goto("about:blank");
  await page.goto(base + hash);
  await page.waitForFunction(() => document.body.dataset.ready);
  await page.evaluate(() => globalThis.laboratory.current?.done);
}

async function shot(page, name) {
  if (!shots) return;
  await mkdir(shots, { recursive: true });
  await page.waitForTimeout(400);
  await page.screenshot({ path: `${shots}/${name}.png` });
}

/** What an accessibility checker finds. */
async function accessible(page, name) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, help, nodes } of found.violations) problems.push(`accessibility of ${name}: ${id}: ${help}: ${nodes[0].html.slice(0, 160)} (${nodes.length})`);
  checks++;
}

async function tours(page) {
  await go(page, "#home");
  const about = await page.evaluate(async () => (await fetch("api/about")).json());
  for (const tour of about.tours) {
    await go(page, `#tour?name=${tour.name}`);
    const steps = await page.evaluate(() => globalThis.laboratory.current.steps);
    for (let step = 0; step < steps; step++) {
      await page.click("[data-do=next-step]");
      const now = await page.evaluate(() => ({ step: globalThis.laboratory.current.step, text: document.querySelector(".sentence").textContent }));
      expect(now.step === step && now.text.length > 4, `${tour.name}: step ${step + 1} is not told`);
    }
    expect(await page.isDisabled("[data-do=next-step]"), `${tour.name} does not end`);
    await page.keyboard.press("p");
    expect((await page.evaluate(() => globalThis.laboratory.current.step)) === steps - 2, `${tour.name}: P does not go back`);
  }
  for (const scenario of about.scenarios) {
    await go(page, `#scenario?name=${scenario.name}`);
    expect((await page.textContent("h1")) === scenario.title, `scenario ${scenario.name} does not open`);
  }
  return about;
}

async function traps(page, about) {
  await go(page, "#trap");
  expect((await page.locator("table.traps tbody tr").count()) === 30, "there are not thirty traps");
  for (const trap of about.traps) {
    await go(page, `#trap?id=${trap.id}`);
    if (trap.how === "told") {
      expect((await page.textContent(".notice")).includes("cannot be put back"), `${trap.id} does not say why it is only told`);
    } else if (trap.how === "simulate") {
      expect((await page.locator(".verdict").count()) === 2, `${trap.id} has not two sides`);
    } else {
      await page.click("[data-do=to-violation]");
      expect((await page.textContent(".verdict.printed")).includes("VIOLATION"), `${trap.id}: the violation is not marked`);
      expect(!(await page.textContent(".verdict.mended")).includes("VIOLATION"), `${trap.id}: mended, it still breaks`);
      await page.keyboard.press("End");
      expect(await page.isDisabled("[data-do=next-step]"), `${trap.id} does not end`);
    }
  }
}

/** Presses every kind of button that Play has at least once, in games that offer them. */
async function play(page) {
  const games = [
    ["protocol=carvalho-roucairol&nodes=3", ["ask", "deliver", "exit", "forget", "cancel", "repeat", "lose", "crash"]],
    ["protocol=ricart-agrawala&nodes=2&membership=classic", ["ask", "crash", "timeout", "restart", "join", "leave"]],
    ["protocol=ricart-agrawala&nodes=2&reply=implicit", ["ask", "tick"]],
  ];
  const pressed = new Set();
  for (const [query, wanted] of games) {
    await go(page, `#play?${query}`);
    const here = new Set();
    for (let step = 0; step < 70; step++) {
      const next = await page.evaluate(() => globalThis.laboratory.current.document.next);
      const missing = wanted.filter((kind) => !here.has(kind));
      // What is missing first; if it is not possible yet whatever must happen, then the rest of what is missing.
      const of = (kind) => next.find((one) => one.kind === kind);
      const choice = of(missing[0]) ?? next.find((one) => one.must) ?? missing.map(of).find(Boolean) ?? of("ask");
      if (!choice || !missing.length) break;
      await page.evaluate(() => document.querySelectorAll(".choices details").forEach((one) => (one.open = true)));
      const before = await page.evaluate(() => globalThis.laboratory.current.commands.length);
      await page.click(`[data-command="${choice.command.replaceAll('"', '\\"')}"]`);
      await page.waitForFunction((count) => globalThis.laboratory.current.commands.length > count, before);
      here.add(choice.kind);
      pressed.add(choice.kind);
    }
  }
  for (const kind of ["ask", "deliver", "cancel", "exit", "lose", "repeat", "crash", "forget", "timeout", "join", "leave", "restart", "tick"]) expect(pressed.has(kind), `Play never offered '${kind}'`);
  const count = await page.evaluate(() => globalThis.laboratory.current.commands.length);
  await page.click("[data-do=undo]");
  await page.waitForFunction((before) => globalThis.laboratory.current.commands.length === before - 1, count);
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("[data-do=export]")]);
  expect(file.suggestedFilename() === "played.txt", "the scenario is not offered as a file");
  await page.click("[data-do=random-step]");
  await page.waitForFunction((before) => globalThis.laboratory.current.commands.length === before, count);
  // A link is all there is to a game.
  await page.waitForTimeout(400);
  const commands = await page.evaluate(() => globalThis.laboratory.current.commands);
  await go(page, new URL(page.url()).hash);
  expect(JSON.stringify(await page.evaluate(() => globalThis.laboratory.current.commands)) === JSON.stringify(commands), "a link does not reproduce a game");
  await page.click("[data-do=restart-play]");
  await page.waitForFunction(() => globalThis.laboratory.current.commands.length === 0);
}

/** Two inside by hand: the oracles object. */
async function oracles(page) {
  await go(page, "#play?protocol=central&nodes=2&as-printed=T22&do=ask 1;ask 2;deliver REQUEST 1 -> 0;deliver REQUEST 2 -> 0;deliver GRANT 0 -> 1;deliver GRANT 0 -> 2".replaceAll(" ", "%20"));
  const text = await page.textContent(".watch");
  expect(text.includes("while node 1 was inside"), `the oracles say nothing: ${text}`);
}

async function run(page) {
  await go(page, "#run?protocol=raymond&nodes=6&entries=8&seed=3");
  const length = await page.evaluate(() => globalThis.laboratory.current.player.trace.length);
  for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "+", "-", "0"]) await page.keyboard.press(key);
  expect((await page.evaluate(() => globalThis.laboratory.current.player.cursor)) === 0, "the keys do not step");
  await page.keyboard.press("End");
  expect((await page.evaluate(() => globalThis.laboratory.current.player.cursor)) === length - 1, "End does not go to the end");
  await page.click("[data-do=first]");
  await page.selectOption(".speed select", "1000");
  await page.click("[data-do=play]");
  await page.waitForFunction(() => !globalThis.laboratory.current.player.playing && globalThis.laboratory.current.player.cursor > 0);
  const send = await page.evaluate(() => globalThis.laboratory.current.player.trace.kindOf.findIndex((kind) => kind >= 0));
  await page.evaluate((index) => globalThis.laboratory.current.player.onPick({ event: index }), send);
  const detail = await page.textContent(".detail");
  expect(["Why", "because", "Arrived", "Changed", "Led to"].every((word) => detail.includes(word)), `a message is not explained: ${detail}`);
  // The picture is the same as on the command line: the events are in the same places.
  const same = await page.evaluate(async () => {
    const { player } = globalThis.laboratory.current;
    const svg = await (await fetch("api/trace.svg?protocol=raymond&nodes=6&entries=8&seed=3")).text();
    const drawn = new DOMParser().parseFromString(svg, "image/svg+xml");
    const messages = [...drawn.querySelectorAll("[data-i] .line, .line[data-i]")].length;
    return { messages, sends: [...player.trace.kindOf].filter((kind) => kind >= 0).length };
  });
  expect(same.messages === 0 || same.messages === same.sends, `the page draws ${same.sends} messages, the SVG ${same.messages}`);
}

async function comparisons(page) {
  await go(page, "#compare?protocol=token&with=maekawa&nodes=4&entries=6");
  expect((await page.locator(".sides canvas").count()) === 2, "there are not two diagrams side by side");
  await page.evaluate(() => globalThis.laboratory.current.players[0].go(20));
  const times = await page.evaluate(() => globalThis.laboratory.current.players.map((player) => player.trace.events[player.cursor]?.at ?? 0));
  expect(times[1] <= times[0], "the second does not follow the first");
  await go(page, "#sweep?protocols=ricart-agrawala,carvalho-roucairol,token&nodes=2,5,10&loads=saturated");
  expect((await page.locator(".chart svg line[stroke-dasharray]").count()) > 0, "lines that cover each other are not striped");
  await page.selectOption(".result select, .tools select", "response_time");
  expect((await page.textContent(".chart figcaption")).startsWith("Response time"), "another measure is not drawn");
  await go(page, "#calculate?nodes=3&reads=50&rate=20&latency=1&hold=1");
  expect((await page.locator("table.numbers tbody tr").count()) >= 5, "the calculator does not answer");
}

async function explorations(page) {
  await go(page, "#check?protocol=ricart-agrawala&nodes=2&entries=2");
  expect((await page.textContent(".result")).includes("Complete"), "an exploration does not end");
  await go(page, "#check?protocol=ricart-agrawala&nodes=2&entries=1&as-printed=T2");
  expect((await page.locator(".result canvas").count()) === 1, "a counterexample is not drawn");
  await go(page, "#views?nodes=3&faults=crash%3A1%406s..9s");
  expect((await page.locator(".timeline rect.state-down").count()) > 0, "a crash is not seen");
  await page.keyboard.press("ArrowRight");
  await go(page, "#swarm?seed=1");
  expect((await page.textContent(".result, .part")).includes("No violation"), "a run of the swarm does not open");
}

/** A thousand nodes and a hundred thousand events. */
async function large(page) {
  await go(page, "#run?protocol=suzuki-kasami&nodes=1000&entries=52&load=light");
  const measured = await page.evaluate(async () => {
    const { player } = globalThis.laboratory.current, { diagram, trace } = player;
    const frames = async (count, move) => {
      diagram.frames = { count: 0, total: 0, worst: 0 };
      let last = performance.now(), longest = 0;
      for (let i = 0; i < count; i++) {
        move(i);
        await new Promise((done) => requestAnimationFrame(done));
        const now = performance.now();
        longest = Math.max(longest, now - last);
        last = now;
      }
      const { count: drawn, total, worst } = diagram.frames;
      return { drawn, mean: total / Math.max(1, drawn), worst, longest };
    };
    const scroll = await frames(60, (i) => { diagram.view.x += 15; diagram.view.y += 20; diagram.clamp(); diagram.redraw(); });
    diagram.fit();
    const whole = await frames(30, () => diagram.redraw());
    diagram.zoom(8);
    player.speed = 1000;
    player.start();
    const playing = await frames(90, () => {});
    player.pause();
    return { events: trace.length, nodes: trace.nodes.length, scroll, whole, playing };
  });
  expect(measured.events >= 100_000 && measured.nodes === 1000, `the run has only ${measured.events} events`);
  for (const [name, { drawn, mean, worst }] of Object.entries(measured).filter(([, value]) => value.drawn)) {
    console.log(`${measured.nodes} nodes, ${measured.events} events, ${name}: ${drawn} frames drawn, ${mean.toFixed(1)} ms on average, ${worst.toFixed(1)} ms at most`);
  }
}

/** Every part on a phone and in the dark: nothing is wider than the screen, and nothing is inaccessible. */
const PARTS = ["home", "tour?name=ricart-agrawala-figure-1&at=14", "run?protocol=ricart-agrawala&nodes=4&at=40", "trap", "trap?id=T1&at=9", "play?protocol=ricart-agrawala&nodes=3&do=ask%201%3Bask%202", "compare?protocol=ricart-agrawala&with=raymond&nodes=4",
  "sweep?protocols=ricart-agrawala,token,raymond,maekawa,naimi-trehel&nodes=2..20&loads=light", "calculate?nodes=5&reads=0&rate=50&latency=1&hold=1", "check?protocol=ricart-agrawala&nodes=2&entries=1&as-printed=T3", "views?nodes=5&faults=partition%3A4%2B5%406s..14s"];

async function everywhere() {
  const screens = [["desktop", {}], ["desktop-dark", { colorScheme: "dark" }], ["phone", { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, reducedMotion: "reduce" }], ["phone-dark", { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, colorScheme: "dark" }]];
  for (const [screen, options] of screens) {
    const page = await open(options);
    for (const part of PARTS) {
      await go(page, `#${part}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(wide <= 1, `${part} is ${wide} px too wide (${screen})`);
      await accessible(page, `${part} (${screen})`);
      const name = part.split("?")[0] + (part === "trap" ? "s" : "");
      if ((screen === "desktop" && ["tour", "run", "trap", "play", "sweep", "views"].includes(name)) || (screen === "phone-dark" && name === "tour")) await shot(page, screen === "desktop" ? name : `${name}-phone`);
    }
    await page.context().close();
  }
}

const page = await open();
const only = process.env.ONLY?.split(",");
const timed = async (name, work) => {
  if (only && !only.some((word) => name.includes(word))) return undefined;
  const began = performance.now();
  const result = await work();
  console.log(`${name}: ${((performance.now() - began) / 1000).toFixed(1)} s`);
  return result;
};
try {
  const about = await timed("tours and scenarios", () => tours(page));
  await timed("traps", async () => traps(page, about ?? (await (await fetch(`${base}api/about`)).json())));
  await timed("play", () => play(page));
  await timed("oracles", () => oracles(page));
  await timed("a run", () => run(page));
  await timed("comparisons", () => comparisons(page));
  await timed("explorations", () => explorations(page));
  await timed("a large run", () => large(page));
  await timed("screens", () => everywhere());
} catch (error) {
  problems.push(`the test stopped: ${error.stack}`);
}
await browser.close();
console.log(`${checks} checks, ${problems.length} problems`);
for (const problem of new Set(problems)) console.log(`- ${problem}`);
process.exit(problems.length ? 1 : 0);
