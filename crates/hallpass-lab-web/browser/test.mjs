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
      const sides = await page.evaluate(() => [...document.querySelectorAll(".sides .verdict")].map((one) => one.getBoundingClientRect().top));
      expect(sides.length === 2 && sides[0] === sides[1], `${trap.id} has not two sides beside each other`);
      const { marks, text } = await page.evaluate(() => ({ marks: globalThis.laboratory.current.players[0].diagram.marks.length, text: document.querySelector(".verdict.printed").textContent }));
      expect(text.includes("VIOLATION") || (marks === 2 && /overtaken \d+ times/.test(text)), `${trap.id} does not show what is wrong as printed: ${text}`);
      await sameAgain(page, trap.id, () => globalThis.laboratory.current.players.map((player) => player.cursor));
    } else {
      await page.click("[data-do=to-violation]");
      expect((await page.textContent(".verdict.printed")).includes("VIOLATION"), `${trap.id}: the violation is not marked`);
      expect(!(await page.textContent(".verdict.mended")).includes("VIOLATION"), `${trap.id}: mended, it still breaks`);
      await page.keyboard.press("End");
      expect(await page.isDisabled("[data-do=next-step]"), `${trap.id} does not end`);
    }
  }
}

/** What is in the address shows the same again. */
async function sameAgain(page, what, look) {
  await page.waitForTimeout(250);
  const before = JSON.stringify(await page.evaluate(look));
  await go(page, new URL(page.url()).hash);
  const after = JSON.stringify(await page.evaluate(look));
  expect(before === after, `${what}: the link shows ${after} instead of ${before}`);
}

/** Both sides of a trap move together, whatever moves one of them. */
async function together(page) {
  await go(page, "#trap?id=T1&at=2");
  const look = () => page.evaluate(() => ({ step: globalThis.laboratory.current.step, cursors: globalThis.laboratory.current.players.map((player) => player.cursor) }));
  const before = await look();
  await page.click(".side:nth-child(2) [data-do=forward]");
  const after = await look();
  expect(after.step === 3 && after.cursors.every((cursor, side) => cursor > before.cursors[side]), `a side moves alone: ${JSON.stringify([before, after])}`);
  await page.click(".side:nth-child(2) [data-do=back]");
  expect(JSON.stringify(await look()) === JSON.stringify(before), "a side does not go back a step");
  await page.click(".side:nth-child(1) [data-do=last]");
  expect((await page.textContent(".verdict.printed")).includes("VIOLATION"), "the verdict does not follow a side's own buttons");
  await sameAgain(page, "a trap", () => globalThis.laboratory.current.step);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("Home");
  await page.keyboard.press(" ");
  await page.waitForFunction(() => globalThis.laboratory.current.step > 0);
  await page.keyboard.press(" ");
}

/** Presses every kind of button that Play has at least once, in games that offer them. */
async function play(page) {
  const games = [
    ["protocol=carvalho-roucairol&nodes=3", ["ask", "deliver", "exit", "forget", "cancel", "repeat", "lose", "crash"]],
    ["protocol=ricart-agrawala&nodes=2&membership=classic", ["ask", "crash", "timeout", "restart", "join", "leave"]],
    ["protocol=ricart-agrawala&nodes=2&reply=implicit", ["ask", "tick"]],
    ["protocol=directory&nodes=2&block=2", ["try", "reenter", "downgrade", "upgrade", "give-back"]],
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
  for (const kind of ["ask", "deliver", "cancel", "exit", "lose", "repeat", "crash", "forget", "timeout", "join", "leave", "restart", "tick", "try", "reenter", "downgrade", "upgrade", "give-back"]) expect(pressed.has(kind), `Play never offered '${kind}'`);
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

/** A game goes on from where it is looked at, and the keyboard stays where it is. */
async function positions(page) {
  await go(page, "#tour?name=ricart-agrawala-figure-1");
  for (let i = 0; i < 4; i++) await page.keyboard.press("n");
  await page.click("[data-do=play-on]");
  await page.waitForFunction(() => document.body.dataset.ready === "play");
  const count = () => page.evaluate(() => globalThis.laboratory.current.commands.length);
  expect((await count()) === 4, "Play does not go on from the tour's step");
  await page.evaluate(() => globalThis.laboratory.current.player.go(2));
  expect((await page.locator("[data-command]").count()) === 0, "the last step's buttons are offered at an earlier one");
  await sameAgain(page, "a game", () => globalThis.laboratory.current.player.cursor);
  await page.click("[data-do=go-on]");
  await page.waitForFunction(() => globalThis.laboratory.current.commands.length === 1);
  await page.keyboard.press("Tab");
  await page.focus("[data-command]");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => globalThis.laboratory.current.commands.length === 2);
  const held = () => page.evaluate(() => document.activeElement.tagName);
  expect((await held()) === "BUTTON", "the focus is lost after a choice");
  await page.focus(".log li:nth-child(2) button");
  await page.keyboard.press("Enter");
  expect((await held()) === "BUTTON", "the focus is lost after an event of the log");
  await page.focus(".scrub");
  await page.keyboard.press("5");
  await page.waitForTimeout(100);
  expect(page.url().includes("#play"), "a digit on a slider leaves the part");
  await go(page, "#run?protocol=central&nodes=9&server=member&queue=lowest-id&readers=0.4&latency=exp:1ms&at=40");
  const shown = (count) => page.evaluate((count) => globalThis.laboratory.current.player.trace.events.slice(0, count).map(({ event, node, to, from, message }) => [event, node, to, from, message].join(" ")).join("\n"), count);
  const run = await shown(41);
  await page.click("[data-do=play-on]");
  await page.waitForFunction(() => document.body.dataset.ready === "play");
  const hash = decodeURIComponent(new URL(page.url()).hash);
  expect(["protocol=central", "nodes=9", "server=member", "queue=lowest-id"].every((word) => hash.includes(word)), `Play has another group than Run: ${hash}`);
  expect(run.length > 400 && (await shown(41)) === run, "Play does not go on from what Run shows");
}

/** A part that is left while it computes is gone. */
async function leaving(page) {
  await page.goto("about:blank");
  await page.goto(base + "#run?nodes=150&entries=100&latency=exp:1ms");
  await page.waitForSelector(".result .wait");
  await page.click("#nav a[href='#tour']");
  await page.waitForTimeout(2500);
  const now = await page.evaluate(() => ({ hash: location.hash, player: Boolean(globalThis.laboratory.current?.player), title: document.title }));
  expect(now.hash === "#tour" && !now.player && now.title.startsWith("Guided tours"), `a part that was left comes back: ${JSON.stringify(now)}`);
  // The address of a place is written a moment later: not over that of another part.
  await go(page, "#run");
  await page.evaluate(() => {
    globalThis.laboratory.current.player.go(3);
    // As between a click on a link and the event that tells of it.
    history.pushState(null, "", "#tour");
  });
  await page.waitForTimeout(400);
  expect((await page.evaluate(() => location.hash)) === "#tour", "a place in a run is written over another part's address");
}

/** Work that nobody waits for any more ends, and what is quick never waits for it. */
async function abandoned() {
  const work = () => fetch(`${base}api/views?swarm=1&seed=5&nodes=60&callers=8`, { signal: AbortSignal.timeout(400) }).catch(() => {});
  await Promise.all(Array.from({ length: 8 }, work));
  const began = performance.now();
  const busy = Array.from({ length: 8 }, () => fetch(`${base}api/views?swarm=1&seed=5&nodes=60&callers=8`, { signal: AbortSignal.timeout(3000) }).catch(() => {}));
  for (const path of ["about", "scenario?name=cmu-example"]) await (await fetch(`${base}api/${path}`)).text();
  expect(performance.now() - began < 2000, `short requests wait for long ones: ${Math.round(performance.now() - began)} ms`);
  await Promise.all(busy);
  const after = performance.now();
  await (await fetch(`${base}api/run`)).text();
  expect(performance.now() - after < 5000, "work goes on after its page is closed");
}

/** What is offered works, and what is nonsense is said to be. */
async function choices(page) {
  await go(page, "#run?protocol=raymond&tree=line");
  await page.selectOption("form select[name=protocol]", "lamport-fifo");
  expect((await page.inputValue("[name=other]")) === "" && (await page.inputValue("[name=order]")) === "fifo", "options or the order of one protocol go to another");
  await page.selectOption("form select[name=links]", "any");
  await page.click("form .primary");
  await page.waitForFunction(() => location.hash.includes("links=any") && document.body.dataset.ready);
  expect((await page.locator(".notice").count()) === 0 && (await page.inputValue("[name=order]")) === "any", "Lamport 1978 cannot be run on links without order");
  await go(page, "#run");
  await page.click("form summary");
  await page.selectOption("form select[name=as-printed]", "T5");
  expect((await page.inputValue("[name=membership]")) === "classic", "a choice does not bring along what it needs");
  await page.fill("[name=faults]", "join:1");
  await page.click("form .primary");
  await page.waitForFunction(() => location.hash.includes("join") && document.body.dataset.ready);
  expect((await page.locator(".result canvas").count()) === 1, "a fault that is suggested is refused");
  await go(page, "#run?protocol=maekawa&faults=loss:0.05&at=abc");
  expect((await page.textContent(".facts")).includes("per entry-"), "a run without entries has messages per entry");
  await go(page, "#play?protocol=lamport-fifo&nodes=2");
  await page.click("form summary");
  await page.selectOption("form select[name=links]", "any");
  await page.click("form .primary");
  await page.waitForFunction(() => location.hash.includes("links=any") && document.body.dataset.ready);
  expect(!(await page.textContent(".watch")).includes("order") && (await page.inputValue("[name=order]")) === "any", "Lamport 1978 cannot be played on links without order");
  await go(page, "#play?nodes=99");
  expect((await page.textContent(".watch")).includes("1 to 32 nodes"), "a game with 99 nodes is played with fewer");
  await go(page, "#trap?id=t15");
  expect((await page.textContent("h1")).startsWith("T15") && !(await page.textContent(".trap-facts")).includes("`"), "t15 is not T15, or has backticks");
  await go(page, "#trap?id=T99");
  expect((await page.textContent(".notice")).includes("T99"), "an unknown trap is not said to be one");
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
  await sameAgain(page, "a run with a message picked", () => [globalThis.laboratory.current.player.cursor, document.querySelector(".detail").textContent]);
  for (const protocol of ["lamport", "token", "maekawa"]) {
    await go(page, `#run?protocol=${protocol}`);
    const other = await page.evaluate(async (protocol) => {
      const { trace } = globalThis.laboratory.current.player;
      const svg = new DOMParser().parseFromString(await (await fetch(`api/trace.svg?protocol=${protocol}`)).text(), "image/svg+xml");
      const labels = [...svg.querySelectorAll(".label")].map((label) => [label.textContent.split("(")[0], Number(/k(\d)/.exec(label.getAttribute("class"))?.[1])]);
      return labels.filter(([kind, colour]) => trace.kinds.includes(kind) && trace.colour(kind) !== colour).length;
    }, protocol);
    expect(other === 0, `${protocol}: ${other} messages have another colour in the SVG`);
  }
}

async function comparisons(page) {
  await go(page, "#compare?protocol=token&with=maekawa&nodes=4&entries=6");
  expect((await page.locator(".sides canvas").count()) === 2, "there are not two diagrams side by side");
  await page.evaluate(() => globalThis.laboratory.current.players[0].go(20));
  const times = await page.evaluate(() => globalThis.laboratory.current.players.map((player) => player.trace.events[player.cursor]?.at ?? 0));
  expect(times[1] <= times[0], "the second does not follow the first");
  await page.evaluate(() => globalThis.laboratory.current.players[1].go(9));
  await sameAgain(page, "two side by side", () => globalThis.laboratory.current.players.map((player) => player.cursor));
  // Both get the same load, also after another choice.
  await go(page, "#run?protocol=raymond&nodes=4&tree=line&hold=3ms&order=fifo&faults=pause:1@3ms..20ms");
  await page.click("text=Compare with another");
  await page.waitForFunction(() => document.body.dataset.ready === "compare");
  await page.selectOption("select[name=with]", "token");
  await page.click("form .primary");
  await page.waitForFunction(() => location.hash.includes("with=token") && document.body.dataset.ready);
  const loads = await page.evaluate(() => globalThis.laboratory.current.players.map((player) => player.trace.title.replace(/--protocol \S+|--option \S+/g, "").trim()));
  expect(loads[0] === loads[1] && ["--nodes 4", "--entries 10", "--hold 3ms", "--order fifo", "--faults pause"].every((word) => loads[1].includes(word)), `different loads are compared: ${loads.join(" and ")}`);
  await go(page, "#sweep?protocols=ricart-agrawala,carvalho-roucairol,token&nodes=2,5,10&loads=saturated");
  expect((await page.locator(".chart svg line[stroke-dasharray]").count()) > 0, "lines that cover each other are not striped");
  await page.selectOption(".result select, .tools select", "response_time");
  expect((await page.textContent(".chart figcaption")).startsWith("Response time"), "another measure is not drawn");
  await page.keyboard.press("Tab");
  await page.focus(".legend button");
  await page.keyboard.press("Enter");
  expect((await page.evaluate(() => document.activeElement.textContent)) === "ricart-agrawala", "the focus is lost after a name of the legend");
  await sameAgain(page, "a sweep", () => [document.querySelector(".chart figcaption").textContent, document.querySelectorAll(".legend .off").length]);
  await go(page, "#calculate?nodes=3&reads=50&rate=20&latency=1&hold=1");
  expect((await page.locator("table.numbers tbody tr").count()) >= 5, "the calculator does not answer");
  const row = await page.getAttribute("table.numbers a", "href");
  expect(["readers=0.5", "latency=1000us", "hold=1000us"].every((word) => row.includes(word)), `a row of the calculator links to another run: ${row}`);
  await go(page, "#calculate?nodes=3&reads=50&rate=x&latency=1&hold=1");
  expect((await page.textContent(".notice")).includes("rate 'x'"), "the calculator takes a rate that is no number");
}

async function explorations(page) {
  await go(page, "#check?protocol=ricart-agrawala&nodes=2&entries=2");
  expect((await page.textContent(".result")).includes("Complete"), "an exploration does not end");
  await go(page, "#check?protocol=ricart-agrawala&nodes=2&entries=1&as-printed=T2");
  expect((await page.locator(".result canvas").count()) === 1, "a counterexample is not drawn");
  await page.evaluate(() => globalThis.laboratory.current.player.go(3));
  await page.waitForTimeout(250);
  await go(page, new URL(page.url()).hash);
  expect((await page.evaluate(() => globalThis.laboratory.current.player?.cursor)) === 3, "a link does not show the place in a counterexample");
  await go(page, "#views?nodes=3&faults=crash%3A1%406s..9s");
  expect((await page.locator(".timeline rect.state-down").count()) > 0, "a crash is not seen");
  await page.keyboard.press("ArrowRight");
  // The session of a node that stands still is over before the next view begins.
  await go(page, "#views?nodes=5&faults=pause:1@6s..11s");
  const ends = await page.evaluate(() => Math.max(...[...document.querySelectorAll(".timeline .session")].map((path) => path.getAttribute("d").match(/[\d.]+/g).map(Number)).filter(([x, y]) => y < 90 && x < 600).map((points) => points[4])));
  const next = await page.evaluate(() => Number([...document.querySelectorAll(".timeline .epoch")].find((text) => text.textContent === "epoch 3").getAttribute("x")));
  expect(ends < next, `the session of a node that stands still is drawn until ${ends}, the next view begins at ${next}`);
  await go(page, "#swarm?seed=2&bug=evict-early");
  const swarm = await page.evaluate(() => ({ text: document.querySelector(".notice").textContent, signs: document.querySelectorAll(".violation-sign").length, faults: document.querySelectorAll(".timeline .fault").length, locks: document.querySelector(".states tbody").textContent }));
  // Which guarantee breaks first follows from the seed, and from everything that a seed draws.
  const names = swarm.text.match(/node \d+/g) ?? [];
  expect(names.length > 0 && names.every((name) => /^node [1-5]$/.test(name)) && swarm.signs > 0, `the violation has other names than the lanes, or no mark: ${JSON.stringify(swarm)}`);
  expect(swarm.faults > 0 && swarm.locks.includes("inside of 'token/0'"), `faults or locks are not shown: ${JSON.stringify(swarm)}`);
  await go(page, "#swarm?seed=1");
  expect((await page.textContent(".result, .part")).includes("No violation"), "a run of the swarm does not open");
}

/** On paper nothing is cut, and on a phone everything has its name. */
async function papers() {
  const page = await open({ viewport: { width: 720, height: 1000 } });
  for (const [part, cut] of [["trap?id=T27&at=17", ".rows"], ["tour?name=ricart-agrawala-figure-1&at=14", ".steps"], ["views", ".scroller"]]) {
    await page.emulateMedia({ media: "screen" });
    await go(page, `#${part}`);
    await page.emulateMedia({ media: "print" });
    const over = await page.evaluate((cut) => { const box = document.querySelector(cut); return [box.scrollWidth - box.clientWidth, box.scrollHeight - box.clientHeight]; }, cut);
    expect(over[0] <= 1 && over[1] <= 1, `${part} is cut on paper by ${over}`);
  }
  await page.context().close();
  const phone = await open({ viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true });
  await go(phone, "#views?at=15000");
  const seen = await phone.evaluate(() => { const name = document.querySelector(".node-name").getBoundingClientRect(), link = document.querySelector("#nav a[aria-current]").getBoundingClientRect(); return [name.left, link.right]; });
  expect(seen[0] >= 0 && seen[1] <= 391, `on a phone a node's name is at ${seen[0]}, the part's at ${seen[1]}`);
  await phone.context().close();
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
  await timed("both sides of a trap", () => together(page));
  await timed("play", () => play(page));
  await timed("positions", () => positions(page));
  await timed("leaving", () => leaving(page));
  await timed("abandoned work", () => abandoned());
  await timed("choices", () => choices(page));
  await timed("oracles", () => oracles(page));
  await timed("a run", () => run(page));
  await timed("comparisons", () => comparisons(page));
  await timed("explorations", () => explorations(page));
  await timed("papers", () => papers());
  await timed("a large run", () => large(page));
  await timed("screens", () => everywhere());
} catch (error) {
  problems.push(`the test stopped: ${error.stack}`);
}
await browser.close();
console.log(`${checks} checks, ${problems.length} problems`);
for (const problem of new Set(problems)) console.log(`- ${problem}`);
process.exit(problems.length ? 1 : 0);
