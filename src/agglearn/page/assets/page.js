"use strict";
(() => {
  const C = JSON.parse(document.getElementById("contents").textContent);
  const root = document.documentElement;

  // --- words and numbers ------------------------------------------------------------------------------------

  const STEERING = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
  const LONGEST = 90;
  // Names come from data nobody vetted: whatever steers a reader is shown, and only so much of it.
  const shown = (text, most = LONGEST) => {
    const harmless = String(text).slice(0, most + 1).replace(
      STEERING, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
    return String(text).length > most ? harmless.slice(0, most - 1) + "…" : harmless;
  };
  // Texts that look alike are told apart by what nobody sees; and no text is a name that objects have already.
  const distinct = (texts) => texts.map((text, k) => "\u200b".repeat(1 + texts.slice(0, k).filter((t) => t === text).length) + text);
  // Vega-Lite stumbles over an axis called "constructor", and Vega over a value "__proto__".
  const titled = (text) => "\u200b" + shown(text, 40);
  const blank = (x) => x === null || x === undefined || Number.isNaN(x);
  const fixed = (x, digits = 4) => blank(x) ? "–" : Number(x).toFixed(digits);
  const signed = (x, digits = 3) => blank(x) ? "–" : (x >= 0 ? "+" : "−") + Math.abs(x).toFixed(digits);
  const percent = (x, digits = 1) => blank(x) ? "–" : (100 * x).toFixed(digits) + " %";
  const whole = (x) => blank(x) ? "–" : Math.round(x).toLocaleString("en");

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") node.className = value;
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }
  const add = (id, ...nodes) => document.getElementById(id).append(...nodes.filter(Boolean));
  const note = (text, kind = "note") => el("p", {class: `note ${kind}`, role: "note"}, shown(text, 600));
  const card = (value, name) => el("div", {class: "card"}, el("b", {}, value), el("span", {}, name));

  function table(heads, rows, caption = "") {
    // heads: [name, is a number]
    const cls = (k) => heads[k][1] ? "number" : "";
    return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "numbers"}, el("table", {},
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, ...heads.map((h, k) => el("th", {scope: "col", class: cls(k)}, h[0])))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((v, k) => el("td", {class: cls(k)}, el("bdi", {}, shown(v, 200)))))))));
  }
  const numbers = (heads, rows) => el("details", {}, el("summary", {}, "The numbers"), table(heads, rows));
  const facts = (pairs) => el("dl", {}, ...pairs.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, el("bdi", {}, shown(v, 800)))]));

  // --- pictures ---------------------------------------------------------------------------------------------

  const charts = new Map(); // node → how its specification is made
  const palette = () => {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    return {ink: colour("ink"), soft: colour("soft"), line: colour("line"), accent: colour("accent"), warm: colour("warm"), ground: colour("ground")};
  };
  function config(p) {
    return {
      background: "transparent", font: "system-ui, sans-serif", view: {stroke: null},
      axis: {labelColor: p.soft, titleColor: p.soft, gridColor: p.line, domainColor: p.line, tickColor: p.line, labelFontSize: 11, titleFontSize: 12, tickCount: 6, labelOverlap: true, titleFontWeight: "normal", labelLimit: 170},
      legend: {labelColor: p.soft, titleColor: p.soft, titleFontWeight: "normal"},
      title: {color: p.ink}, text: {color: p.ink},
    };
  }
  async function draw(node) {
    const p = palette();
    root.dataset.drawn = isDark() ? "dark" : "light"; // pictures keep their colours when printed
    const spec = {description: node.dataset.said, width: "container", autosize: {type: "fit-x", contains: "padding"}, ...charts.get(node)(p)};
    const made = await vegaEmbed(node, spec, {mode: "vega-lite", actions: false, renderer: "svg", config: config(p), logLevel: 1, tooltip: {theme: isDark() ? "dark" : "light"}});
    node.finalize?.();
    node.finalize = () => made.finalize();
    node.setAttribute("data-drawn", String(Number(node.getAttribute("data-drawn") || 0) + 1));
  }
  function figure(caption, description, make) {
    const node = el("div", {class: "chart", role: "img", "aria-label": shown(description, 300), "data-said": shown(description, 300)});
    charts.set(node, make);
    return el("figure", {}, el("figcaption", {}, caption), node);
  }
  const chartOf = (fig) => fig.querySelector(".chart");

  // --- light and dark ---------------------------------------------------------------------------------------

  const darkMedia = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (darkMedia.matches ? "dark" : "light")) === "dark";
  const themeButton = document.getElementById("theme");
  function tellTheme() {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-pressed", String(isDark()));
    themeButton.setAttribute("aria-label", isDark() ? "Show the page light" : "Show the page dark");
  }
  function redraw() { tellTheme(); for (const node of charts.keys()) if (node.isConnected) draw(node); }
  themeButton.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; redraw(); });
  darkMedia.addEventListener("change", () => { if (!root.dataset.theme) redraw(); });
  tellTheme();

  // --- what was learnt from what ----------------------------------------------------------------------------

  document.getElementById("name").textContent = shown(C.name, 160);
  add("sources",
    facts(C.facts),
    el("details", {}, el("summary", {}, `The ${whole(C.features.length)} features`),
      table([["feature"], ["kind"], ["values", true]], C.features.map((f) => [f.name, f.kind, whole(f.values)]))));

  // --- how good ---------------------------------------------------------------------------------------------

  function quality() {
    const Q = C.quality;
    if (!Q) {
      add("quality", note("The model was not judged here: give tables of other records, or records with their label, and the report tells how good it is."));
      return;
    }
    const s = Q.scores, tables = Q.kind === "tables";
    C.doubts.forEach((text) => add("quality", note(text, "warning")));
    add("quality",
      el("p", {}, `Judged on ${whole(Q.rows)} records${tables ? " behind tables" : ""}, ${percent(Q.positives / Q.rows, 2)} of them positive.`),
      el("div", {class: "cards"},
        card(blank(s.nllh) ? "unknown" : `${fixed(s.nllh)} ± ${fixed(s.nllh_se)}`, "NLLH: 0 knows the rate alone, 1 all"),
        card(fixed(s.auc), tables ? "AUC, as the model expects it" : "AUC: a positive above a negative"),
        card(fixed(s.log_loss), "log loss"),
        card(fixed(s.brier), tables ? "Brier, as the model expects it" : "Brier score")));
    const calibration = figure("Is what is predicted what comes?",
      "Calibration: observed rate against predicted rate, with two standard errors; points on the diagonal are right",
      (p) => ({height: 260, layer: [
        {data: {values: [{x: 0, y: 0}, {x: 1, y: 1}]}, mark: {type: "line", color: p.soft, strokeDash: [4, 4], clip: true}, encoding: {x: {field: "x", type: "quantitative"}, y: {field: "y", type: "quantitative"}}},
        {data: {values: Q.calibration}, mark: {type: "rule", color: p.accent, opacity: .6}, transform: [{calculate: "max(0, datum.observed - 2 * datum.error)", as: "lo"}, {calculate: "min(1, datum.observed + 2 * datum.error)", as: "hi"}], encoding: {x: {field: "predicted", type: "quantitative"}, y: {field: "lo", type: "quantitative"}, y2: {field: "hi"}}},
        {data: {values: Q.calibration}, mark: {type: "point", filled: true, size: 60, color: p.accent}, encoding: {
          x: {field: "predicted", type: "quantitative", title: "predicted", axis: {format: "%"}},
          y: {field: "observed", type: "quantitative", title: "observed", axis: {format: "%"}},
          tooltip: [{field: "count", format: ",.0f", title: "records"}, {field: "predicted", format: ".2%"}, {field: "observed", format: ".2%"}]}}]}));
    const lift = figure(tables ? "How positives gather at the top (as the model expects)" : "How positives gather at the top",
      "Lift: share of all positives among the records with the highest predictions",
      (p) => ({height: 260, layer: [
        {data: {values: [{x: 0, y: 0}, {x: 1, y: 1}]}, mark: {type: "line", color: p.soft, strokeDash: [4, 4]}, encoding: {x: {field: "x", type: "quantitative"}, y: {field: "y", type: "quantitative"}}},
        {data: {values: Q.lift}, mark: {type: "line", point: true, color: p.accent}, encoding: {
          x: {field: "share", type: "quantitative", title: "records, highest predictions first", axis: {format: "%"}},
          y: {field: "gain", type: "quantitative", title: "of all positives", axis: {format: "%"}},
          tooltip: [{field: "share", format: ".1%", title: "records"}, {field: "gain", format: ".1%", title: "positives"}]}}]}));
    add("quality", el("div", {class: "grid"},
      el("div", {}, calibration, numbers([["records", true], ["predicted", true], ["observed", true]], Q.calibration.map((b) => [whole(b.count), percent(b.predicted, 2), `${percent(b.observed, 2)} ± ${percent(b.error, 2)}`]))),
      el("div", {}, lift, numbers([["of the records", true], ["of the positives", true]], Q.lift.map((b) => [percent(b.share), percent(b.gain)])))));
    if (Q.cells && Q.cells.length) {
      add("quality", el("h3", {}, "Cells where labels and predictions differ most"),
        table([["cell"], ["records", true], ["expected", true], ["observed", true]], Q.cells.map((c) => [c.name, whole(c.count), percent(c.predicted), percent(c.observed)])));
    }
    if (Q.baselines.length) {
      add("quality", figure("Beside simpler models of the same tables",
        "NLLH of this model and of simpler ones, with two standard errors",
        (p) => ({height: 30 * Q.baselines.length, data: {values: Q.baselines}, transform: [{calculate: "datum.nllh - 2 * datum.nllh_se", as: "lo"}, {calculate: "datum.nllh + 2 * datum.nllh_se", as: "hi"}],
          encoding: {y: {field: "model", type: "nominal", sort: null, title: null, axis: {labelLimit: 220}}},
          layer: [
            {mark: {type: "bar", cornerRadiusEnd: 3, height: 16}, encoding: {x: {field: "nllh", type: "quantitative", title: "NLLH"}, color: {condition: {test: "datum.own", value: p.accent}, value: p.line}, tooltip: [{field: "model"}, {field: "nllh", format: ".4f", title: "NLLH"}, {field: "nllh_se", format: ".4f", title: "±"}]}},
            {mark: {type: "rule", color: p.ink, opacity: .6}, encoding: {x: {field: "lo", type: "quantitative"}, x2: {field: "hi"}}}]})),
        el("p", {class: "soft small"}, "Simpler models were fitted to the model's own tables, each with the penalty that serves it best here."),
        numbers([["model"], ["NLLH", true]], Q.baselines.map((b) => [b.model, `${fixed(b.nllh)} ± ${fixed(b.nllh_se)}`])));
    }
  }
  quality();

  // --- what it learnt ---------------------------------------------------------------------------------------

  const choice = (id, label, options, onchange) => {
    const select = el("select", {id, onchange: () => onchange(Number(select.value))}, ...options.map((text, k) => el("option", {value: k}, shown(text))));
    return el("div", {class: "choose"}, el("label", {for: id}, label), select);
  };

  function importance() {
    const top = C.terms.slice(0, 20).map((t, k) => ({...t, term: shown(t.term, 44), order: k}));
    add("learnt",
      el("p", {}, "How far each feature, and each pair of features together, moves the log-odds from record to record (standard deviation)."),
      figure("What predictions rest on", "Importance: spread of the log-odds by term, the largest first",
        (p) => ({height: 21 * top.length, data: {values: top}, mark: {type: "bar", cornerRadiusEnd: 3},
          encoding: {
            y: {field: "order", type: "ordinal", axis: {title: null, labelLimit: 300, labelExpr: "data('terms')[datum.value] ? data('terms')[datum.value].term : ''"}},
            x: {field: "spread", type: "quantitative", title: "spread of the log-odds"},
            color: {condition: {test: "datum.kind === 'feature'", value: p.accent}, value: p.warm},
            tooltip: [{field: "term"}, {field: "kind"}, {field: "spread", format: ".3f"}, {field: "share", format: ".1%", title: "share of the variance"}]},
          datasets: {terms: top}, data: {name: "terms"}})),
      el("p", {class: "soft small"}, "Blue: a feature alone. Orange: features together, beyond what each says alone."),
      numbers([["term"], ["kind"], ["spread", true], ["share of the variance", true]], C.terms.map((t) => [t.term, t.kind, fixed(t.spread, 3), percent(t.share)])));
  }
  importance();

  function effects() {
    const holder = el("div", {id: "effect"});
    function show(k) {
      const E = C.effects[k], rows = E.values.map((v, i) => ({...v, text: shown(v.value, 40), order: i}));
      if (!E.ordered) rows.sort((a, b) => a.effect - b.effect).forEach((row, i) => { row.order = i; });
      const told = rows.some((r) => r.lower !== undefined);
      const tip = [{field: "text", title: "value"}, {field: "effect", format: "+.3f"}, ...(told ? [{field: "lower", format: "+.3f"}, {field: "upper", format: "+.3f"}] : []), {field: "share", format: ".1%", title: "records"}, {field: "rate", format: ".1%", title: "rate predicted"}];
      const names = {labelExpr: "data('rows')[datum.value] ? data('rows')[datum.value].text : ''", labelLimit: 200};
      const value = (axis) => ({field: "effect", type: "quantitative", title: "adds to the log-odds", ...axis});
      const upright = (p) => ({height: 280, datasets: {rows}, data: {name: "rows"},
        encoding: {x: {field: "order", type: "ordinal", axis: {title: null, labelAngle: -45, labelOverlap: true, ...names}}},
        layer: [
          {mark: {type: "rule", color: p.soft, strokeDash: [3, 3]}, encoding: {x: null, y: {datum: 0}}},
          ...(told ? [{mark: {type: "area", interpolate: "step", opacity: .18, color: p.accent}, encoding: {y: {field: "lower", type: "quantitative"}, y2: {field: "upper"}}}] : []),
          {mark: {type: "line", interpolate: "step", color: p.accent, strokeWidth: 2}, encoding: {y: value()}},
          {mark: {type: "point", filled: true, size: 45, color: p.accent}, encoding: {y: value(), tooltip: tip}}]});
      const lying = (p) => ({height: Math.max(60, 22 * rows.length), datasets: {rows}, data: {name: "rows"},
        encoding: {y: {field: "order", type: "ordinal", sort: "descending", axis: {title: null, ...names}}},
        layer: [
          {mark: {type: "rule", color: p.soft, strokeDash: [3, 3]}, encoding: {y: null, x: {datum: 0}}},
          ...(told ? [{mark: {type: "rule", color: p.accent, opacity: .55, strokeWidth: 2}, encoding: {x: {field: "lower", type: "quantitative"}, x2: {field: "upper"}}}] : []),
          {mark: {type: "point", filled: true, size: 55, color: p.accent}, encoding: {x: value(), tooltip: tip}}]});
      holder.replaceChildren(
        figure(shown(E.feature, 120), `Effect of each value of ${E.feature} on the log-odds`, E.ordered ? upright : lying),
        E.left_out ? el("p", {class: "soft small"}, `The ${rows.length} most frequent of ${rows.length + E.left_out} values.`) : "",
        numbers([["value"], ["records", true], ["effect", true], ...(told ? [["interval", true]] : []), ["rate predicted", true]],
          E.values.map((v) => [v.value, percent(v.share), signed(v.effect), ...(told ? [`${signed(v.lower)} to ${signed(v.upper)}`] : []), percent(v.rate)])));
      draw(chartOf(holder));
    }
    add("learnt", el("h3", {}, "A feature"),
      el("p", {class: "soft small"}, C.no_intervals ? `Without intervals: ${shown(C.no_intervals, 300)}.` : `What a value adds to the log-odds by itself, beside the average record; with intervals of ${percent(C.level, 0)}.`),
      choice("feature", "Feature", C.effects.map((e) => e.feature), show), holder);
    show(0);
  }
  effects();

  function pairs() {
    if (!C.pairs.length) return;
    const holder = el("div", {id: "pair"});
    function show(k) {
      const P = C.pairs[k], first = Object.keys(P.first).map(Number), second = Object.keys(P.second).map(Number);
      const down = distinct(first.map((i) => shown(P.first[i], 24))), across = distinct(second.map((j) => shown(P.second[j], 24)));
      const cells = P.cells.map((c) => ({...c, x: across[second.indexOf(c.b)], y: down[first.indexOf(c.a)], cell: `${shown(P.features[0], 40)} = ${shown(P.first[c.a], 40)}, ${shown(P.features[1], 40)} = ${shown(P.second[c.b], 40)}`}));
      const most = Math.max(...cells.map((c) => Math.abs(c.interaction)), 1e-9);
      const rates = cells.flatMap((c) => [c.rate, c.observed]).filter((r) => !blank(r));
      const tip = [{field: "cell"}, {field: "interaction", format: "+.3f", title: "adds together"}, {field: "rate", format: ".1%", title: "rate predicted"}, ...(cells[0].observed !== undefined ? [{field: "observed", format: ".1%", title: "rate in the table"}] : []), {field: "records", format: ",.0f"}];
      const map = (field, title, scale) => (p) => ({height: Math.max(120, Math.min(420, 17 * first.length)), data: {values: cells},
        mark: {type: "rect"}, encoding: {
          x: {field: "x", type: "nominal", sort: null, axis: {title: titled(P.features[1]), labelAngle: -60, labelLimit: 90, labelOverlap: true, domain: false, ticks: false}},
          y: {field: "y", type: "nominal", sort: null, axis: {title: titled(P.features[0]), labelLimit: 110, domain: false, ticks: false}},
          color: {field, type: "quantitative", title: null, scale: scale(p), legend: {orient: "top", gradientLength: 150, gradientThickness: 8, format: field === "interaction" ? "+.1f" : ".0%"}},
          tooltip: tip}});
      const apart = (p) => ({domain: [-most, 0, most], interpolate: "rgb", range: [p.accent, isDark() ? "#1b222c" : "#ffffff", p.warm]});
      const rate = () => ({domain: [Math.min(...rates), Math.max(...rates)], scheme: "viridis"});
      const maps = [figure("Adds to the log-odds together", `Heat map of what ${P.pair} add together, beyond their single effects`, map("interaction", "", apart)),
        figure("Rate predicted", `Heat map of the rate predicted by ${P.pair}`, map("rate", "", rate))];
      if (cells[0].observed !== undefined) maps.push(figure("Rate in the table", `Heat map of the rate in the table of ${P.pair}`, map("observed", "", rate)));
      const left = P.left_out.reduce((a, b) => a + b, 0);
      holder.replaceChildren(el("p", {}, el("strong", {}, el("bdi", {}, shown(P.pair, 200))), ` moves the log-odds by ${fixed(P.spread, 3)}.`),
        el("div", {class: "grid maps"}, ...maps),
        left ? el("p", {class: "soft small"}, "The most frequent values are shown.") : "",
        numbers([[shown(P.features[0], 60)], [shown(P.features[1], 60)], ["records", true], ["together", true], ["predicted", true], ["in the table", true]],
          [...P.cells].sort((a, b) => Math.abs(b.interaction) * Math.sqrt(b.records) - Math.abs(a.interaction) * Math.sqrt(a.records)).slice(0, 60).map((c) => [P.first[c.a], P.second[c.b], whole(c.records), signed(c.interaction), percent(c.rate), percent(c.observed)])));
      holder.querySelectorAll(".chart").forEach((node) => draw(node));
    }
    add("learnt", el("h3", {}, "Two features together"),
      choice("pairs", "Pair", C.pairs.map((q) => q.pair), show), holder);
    show(0);
  }
  pairs();

  // --- a record ---------------------------------------------------------------------------------------------

  const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;

  function whatif() {
    const W = C.whatif;
    if (W.reason) {
      add("whatif", note(`The page cannot score records: ${W.reason}. Use the command line, or an export.`));
      return;
    }
    const model = W.model;
    model.tables.forEach((t) => { t.weights = new Float64Array(decode(t.weights)); });
    const scorer = agglearnScorer(model), cards = model.features.map((f) => f.modalities.length);
    const starts = [0];
    model.tables.forEach((t) => starts.push(starts.at(-1) + t.weights.length));
    const draws = W.draws && {...W.draws, rests: new Int8Array(decode(W.draws.rests)), effects: W.draws.effects.map((text) => new Float32Array(decode(text)))};

    // Codes are what fields hold; a field that takes raw values codes them by the model's own rule.
    const codes = [...W.first];
    const fields = model.features.map((feature, f) => {
      const id = `field-${f}`, rule = feature.rule;
      const many = feature.modalities.length > 150;
      let input;
      if (rule.kind === "cuts" || many) {
        const list = rule.kind !== "cuts" ? el("datalist", {id: `${id}-list`}, ...Object.keys(rule.codes).slice(0, 300).map((v) => el("option", {value: v}))) : null;
        input = el("input", {id, type: "text", inputmode: rule.kind === "cuts" ? "decimal" : "text", autocomplete: "off", list: list ? list.id : null, value: start(feature, codes[f]), placeholder: "missing"});
        input.addEventListener("input", () => { codes[f] = scorer.codes({[feature.name]: input.value === "" ? null : input.value})[f]; tell(); });
        if (list) return el("div", {}, el("label", {for: id}, el("bdi", {}, shown(feature.name))), input, list);
      } else {
        input = el("select", {id}, ...feature.modalities.map((text, code) => el("option", {value: code, selected: code === codes[f]}, shown(text))), el("option", {value: cards[f]}, "unknown to the model"));
        input.addEventListener("change", () => { codes[f] = Number(input.value); tell(); });
      }
      return el("div", {}, el("label", {for: id}, el("bdi", {}, shown(feature.name))), input);
    });

    function start(feature, code) {
      const rule = feature.rule;
      if (rule.kind !== "cuts") return Object.keys(rule.codes).find((v) => rule.codes[v] === code) ?? "";
      if (code === rule.missing && code > rule.cuts.length) return "";
      const below = rule.cuts[code - 1], above = rule.cuts[code];
      if (below && above) return String(below[0] === above[0] ? below[0] : below[1] ? (below[0] + above[0]) / 2 : below[0]);
      if (below) return String(below[1] ? below[0] + 1 : below[0]);
      return above ? String(above[1] ? above[0] : above[0] - 1) : "0";
    }

    // What each term adds: as Python's explain, from the same parts.
    function contributions(cells) {
      const alone = model.features.map(() => 0), joint = [];
      model.tables.forEach((table, t) => {
        const said = W.effects[t].map((effect, k) => effect[codes[table.features[k]]] ?? 0);
        const sum = said.reduce((a, b) => a + b, W.means[t]);
        said.forEach((adds, k) => { alone[table.features[k]] += adds; });
        if (cells[t] >= 0) {
          if (said.length !== 1) joint.push({features: table.features, adds: table.weights[cells[t]] - sum});
        } else { // a table that an unknown value silences: what it would have said is taken back there
          const unknown = table.features.filter((f) => codes[f] >= cards[f]);
          unknown.forEach((f) => { alone[f] -= sum / unknown.length; });
        }
      });
      return [...alone.map((adds, f) => ({name: model.features[f].name, adds, pair: false})),
        ...joint.map((j) => ({name: j.features.map((f) => model.features[f].name).join(" × "), adds: j.adds, pair: true}))];
    }

    function interval(cells, logOdds) {
      if (!draws) return null;
      const moved = [...draws.base], sets = draws.count + 1;
      draws.effects.forEach((effect, f) => { if (codes[f] < cards[f]) moved.forEach((_, k) => { moved[k] += effect[codes[f] * sets + k]; }); });
      cells.forEach((cell, t) => { if (cell >= 0) moved.forEach((_, k) => { moved[k] += draws.factors[t] * draws.rests[(starts[t] + cell) * sets + k]; }); });
      const centre = logOdds + moved[0], squares = moved.slice(1).reduce((sum, m) => sum + m * m, 0);
      const silent = cells.filter((cell) => cell < 0).length;
      const reach = draws.quantile * Math.sqrt(squares / draws.count + silent * draws.unknown);
      return [Math.min(centre - reach, logOdds), Math.max(centre + reach, logOdds)];
    }

    const sigmoid = (s) => 1 / (1 + Math.exp(-s));
    const output = el("output", {id: "probability", for: model.features.map((_, f) => `field-${f}`).join(" "), "aria-live": "polite"});
    const range = el("span", {id: "interval", class: "soft"}), odds = el("span", {class: "soft small"});
    const band = el("i"), mark = el("b"), meter = el("div", {class: "meter", "aria-hidden": "true"}, band, mark);
    let bars = [];
    const waterfall = figure("What moves it", "What each term adds to the log-odds of this record, the largest first",
      (p) => ({height: 22 * bars.length, datasets: {bars}, data: {name: "bars"}, mark: {type: "bar", cornerRadius: 2},
        encoding: {
          y: {field: "order", type: "ordinal", axis: {title: null, labelLimit: 300, labelExpr: "data('bars')[datum.value] ? data('bars')[datum.value].text : ''"}},
          x: {field: "adds", type: "quantitative", title: "adds to the log-odds, beside the average record"},
          color: {condition: {test: "datum.adds > 0", value: p.warm}, value: p.accent},
          tooltip: [{field: "text", title: "term"}, {field: "adds", format: "+.3f"}]}}));
    let waiting = 0;
    function tell() {
      const cells = scorer.cells(codes);
      const logOdds = cells.reduce((sum, cell, t) => sum + (cell < 0 ? 0 : model.tables[t].weights[cell]), model.intercept);
      const p = sigmoid(logOdds), ends = interval(cells, logOdds);
      output.textContent = percent(p, 2);
      output.dataset.probability = String(p);
      odds.textContent = `log-odds ${signed(logOdds)}`;
      range.textContent = ends ? `${percent(draws.level, 0)} interval ${percent(sigmoid(ends[0]), 1)} to ${percent(sigmoid(ends[1]), 1)}` : "";
      mark.style.left = `${100 * p}%`;
      band.style.left = ends ? `${100 * sigmoid(ends[0])}%` : "0";
      band.style.width = ends ? `${100 * (sigmoid(ends[1]) - sigmoid(ends[0]))}%` : "0";
      bars = contributions(cells).sort((a, b) => Math.abs(b.adds) - Math.abs(a.adds)).slice(0, 14).map((b, k) => ({...b, order: k, text: shown(b.name, 44)}));
      clearTimeout(waiting);
      waiting = setTimeout(() => draw(chartOf(waterfall)), 120);
    }
    add("whatif",
      el("p", {}, `Set a record's values; the probability that ${shown(C.label.name, 60)}${C.label.positive ? ` = ${shown(C.label.positive, 40)}` : " = 1"} follows at once. An empty field is a missing value.`),
      el("div", {class: "fields"}, ...fields),
      el("div", {class: "answer"}, output, range, odds), meter, waterfall);
    tell();
  }
  whatif();

  // --- trust, training, reproduce ---------------------------------------------------------------------------

  if (C.trust) {
    const holder = el("div");
    holder.innerHTML = C.trust.html; // made by agglearn's own writer, which escapes every name
    add("trust", holder);
  } else {
    add("trust", note("Give the tables that the model was fitted to, and the report tells where it cannot be trusted and which further tables would help."));
  }

  function training() {
    const F = C.fit, H = C.history;
    add("training", el("p", {}, `${whole(F.iterations)} iterations${F.chains ? ` of ${whole(F.chains)} chains` : ""} in ${fixed(F.seconds, 1)} s; ended because ${shown(F.stopped_because, 200)}.`));
    const line = (title, description, series, axis) => figure(title, description, (p) => ({height: 200,
      data: {values: H.flatMap((h) => series.filter(([key]) => h[key] !== undefined).map(([key, name]) => ({iteration: h.iteration, value: h[key], series: name})))},
      mark: {type: "line"}, encoding: {
        x: {field: "iteration", type: "quantitative", title: "iteration"},
        y: {field: "value", type: "quantitative", title: null, ...axis},
        color: {field: "series", type: "nominal", title: null, legend: series.filter(([key]) => H.some((h) => h[key] !== undefined)).length > 1 ? {orient: "top"} : null, scale: {range: [p.accent, p.warm]}},
        tooltip: [{field: "iteration"}, {field: "series"}, {field: "value", format: ".4f"}]}}));
    const figures = [line("Misfit", "Misfit of the tables over iterations", [["misfit_d", "records"], ["misfit_c", "positives"]], {axis: {format: ".0%"}, scale: {type: "log"}})];
    if (H.some((h) => h.valid_nllh !== undefined)) figures.push(line("NLLH on validation tables", "Validation score over iterations", [["valid_nllh", "NLLH"]], {scale: {zero: false}}));
    if (H.some((h) => h.moved !== undefined)) figures.push(line("How far predictions still moved", "Movement of predicted log-odds between two looks", [["moved", "log-odds"]], {scale: {type: "log"}}));
    if (H.some((h) => h.moves !== undefined)) figures.push(line("Mixing: values that a sweep changes", "Share of values that changed in a sweep, and of proposals accepted", [["moves", "changed"], ["acceptance", "proposals accepted"]], {axis: {format: "%"}, scale: {zero: false}}));
    add("training", el("div", {class: "grid"}, ...figures));
  }
  training();
  add("reproduce", facts(C.reproduce));

  Promise.all([...charts.keys()].filter((node) => node.isConnected && !node.hasAttribute("data-drawn")).map(draw))
    .then(() => root.setAttribute("data-ready", "true"));
})();
