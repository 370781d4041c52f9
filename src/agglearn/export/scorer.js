/* Score records with a model that agglearn wrote as JSON; needs nothing else.
 *
 *   const scorer = agglearnScorer(JSON.parse(text));
 *   scorer.probability({colour: "red", age: 41, city: null});
 *
 * A record is an object from the name of a feature to its raw value: a string, a number, a bigint, true or
 * false, or null where it is missing. Works in browsers as a script, and in Node.js by require.
 */
"use strict";

const agglearnScorer = (() => {
  const FORMAT = "agglearn.scorer", VERSION = 2; // the first version lists no cells
  const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
  const WRITTEN = /^(-?(?:0|[1-9][0-9]{0,400}|(?=\.[0-9])))(?:\.([0-9]{0,400}))?([eE][+-][0-9]{1,3})?$/;
  const ENDLESS = /^([+-]?)inf(inity)?$/i;

  // A text as a number, undefined where it is none.
  function numberOf(value) {
    if (typeof value !== "string") return Number(value);
    const text = value.trim();
    if (NUMBER.test(text)) return Number(text);
    const endless = ENDLESS.exec(text);
    if (endless) return endless[1] === "-" ? -Infinity : Infinity;
    return /^[+-]?nan$/i.test(text) ? NaN : undefined;
  }

  // The one text of a value, whatever type carries it.
  function textOf(value) {
    if (typeof value !== "number") return String(value);
    if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e22) return BigInt(value).toString();
    return size >= 1e-6 && size < 1e10 ? String(value) : value.toExponential();
  }

  // What a raw value becomes: by cuts if it is a number, by its text otherwise.
  function codeOf(rule, value) {
    if (value === null || value === undefined || Number.isNaN(value)) return rule.missing;
    if (rule.kind === "cuts") {
      const number = numberOf(value);
      if (number === undefined) return rule.unknown;
      if (Number.isNaN(number)) return rule.missing;
      return rule.cuts.filter(([cut, after]) => number > cut || (number === cut && !after)).length;
    }
    const text = rule.value_type === "boolean" && typeof value === "string" ? value.toLowerCase() : textOf(value);
    if (Object.hasOwn(rule.codes, text)) return rule.codes[text];
    rule.keys ??= keysOf(rule.codes);
    return rule.keys.get(keyOf(text)) ?? rule.default;
  }

  // The one form of a number or an answer, however it is written; undefined for any other text.
  function keyOf(text) {
    const plain = text.trim(), word = plain.toLowerCase();
    if (word === "true" || word === "false") return word === "true" ? "1" : "0";
    const found = WRITTEN.exec(plain);
    if (!found) return undefined;
    const [, whole, part, power] = found;
    if (power === undefined && !/[1-9]/.test(part ?? "")) return ["", "-", "-0"].includes(whole) ? "0" : whole;
    const value = Number(plain);
    return Number.isFinite(value) ? textOf(value) : undefined;
  }

  // Codes by the keys of their texts; where texts share a key, nothing but the text tells.
  function keysOf(codes) {
    const found = new Map(), shared = new Set();
    for (const [text, code] of Object.entries(codes)) {
      const key = keyOf(text);
      if (key !== undefined && found.has(key)) shared.add(key);
      if (key !== undefined) found.set(key, code);
    }
    for (const key of shared) found.delete(key);
    return found;
  }

  // Where a rank stands in an increasing list; past its end, where the weight of all others is, if it does not.
  function placeOf(listed, rank) {
    let low = 0, high = listed.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (listed[middle] < rank) low = middle + 1; else high = middle;
    }
    return listed[low] === rank ? low : listed.length;
  }

  // The cell that counts a combination of codes, or -1 where one of them is unknown.
  function cellOf(table, codes, cards) {
    if (codes.some((code, k) => code >= cards[k])) return -1;
    const rank = () => codes.reduce((cell, code, k) => cell * cards[k] + code, 0);
    if (table.listed) return placeOf(table.listed, rank());
    if (!table.buckets) return rank();
    let state = 0n;
    for (const code of codes) { // 64-bit arithmetic that wraps around
      state = BigInt.asUintN(64, (state ^ BigInt(code + 1)) * 0x9E3779B97F4A7C15n);
      state ^= state >> 29n;
    }
    return Number(state % BigInt(table.buckets));
  }

  return function agglearnScorer(model) {
    if (model.format !== FORMAT || ![1, VERSION].includes(model.version)) {
      throw new Error(`this is not a document of format ${FORMAT}, version 1 or ${VERSION}`);
    }
    const cards = model.features.map((feature) => feature.modalities.length);

    /** The code of each feature; a code that is no modality's is unknown. */
    const codes = (record) => model.features.map((feature) => codeOf(feature.rule, record[feature.name]));

    /** The cell of each table for a record's codes, -1 where a table says nothing of it. */
    const cells = (found) => model.tables.map(
      (table) => cellOf(table, table.features.map((f) => found[f]), table.features.map((f) => cards[f])));

    /** The log-odds of the positive label: the weights of the record's cells, one in each table. */
    const logOdds = (record) => cells(codes(record)).reduce(
      (sum, cell, t) => sum + (cell < 0 ? 0 : model.tables[t].weights[cell]), model.intercept);

    /** The probability of the positive label. */
    const probability = (record) => 1 / (1 + Math.exp(-logOdds(record)));

    return {codes, cells, logOdds, probability};
  };
})();

if (typeof module !== "undefined") module.exports = agglearnScorer;
