/**
 * Which part of a look is which part of an earlier one. An element is itself; and where a page draws a list anew,
 * parts in the same place that show the same are the same too, and keep their refs.
 */
import type { Look, Part } from "./looks.ts";

export type Pairs = Map<Part, Part>;

export function createPairing(passRef: (ref: string, from: Element, to: Element) => void) {
  /** Of what was drawn anew with a change, so much has to be as it was. */
  const similarityMin = 0.5;
  /** Of this many neighbours the first similar one is taken. */
  const neighboursMax = 3;

  function pair(old: Look, now: Look): Pairs {
    const pairs: Pairs = new Map();
    const taken = new Set<Part>();
    const signatures = new Map<Part, number>();
    const numbers = new Map<string, number>();

    /** Equal for parts that show the same, with everything below them. */
    function signatureOf(part: Part): number {
      let signature = signatures.get(part);
      if (signature !== undefined) return signature;
      const text = `${part.parts.map(signatureOf).join()} ${part.own}`;
      signature = numbers.get(text) ?? numbers.size;
      numbers.set(text, signature);
      signatures.set(part, signature);
      return signature;
    }

    function add(is: Part, was: Part): void {
      pairs.set(is, was);
      taken.add(was);
    }

    function addDrawnAnew(is: Part, was: Part): void {
      add(is, was);
      if (was.node.ref && is.node.ref) {
        passRef(was.node.ref, was.element!, is.element!);
        is.node.ref = was.node.ref;
      }
      pairChildren(is, was);
    }

    function linesOf(part: Part, lines: string[] = []): string[] {
      lines.push(part.own);
      for (const each of part.parts) linesOf(each, lines);
      return lines;
    }

    function isSimilar(is: Part, was: Part): boolean {
      if (is.node.role !== was.node.role) return false;
      const before = linesOf(was);
      const after = linesOf(is);
      const size = Math.max(before.length, after.length);
      const counts = new Map<string, number>();
      for (const line of before) counts.set(line, (counts.get(line) ?? 0) + 1);
      let same = 0;
      for (const line of after) {
        const left = counts.get(line) ?? 0;
        if (left > 0) same++;
        counts.set(line, left - 1);
      }
      return same / size >= similarityMin;
    }

    function pairChildren(is: Part, was: Part): void {
      const lost = was.parts.filter((part) => !taken.has(part));
      const fresh = is.parts.filter((part) => !pairs.has(part));
      if (lost.length === 0 || fresh.length === 0) return;
      const bySignature = new Map<number, Part[]>();
      for (const part of lost.toReversed()) {
        const signature = signatureOf(part);
        const same = bySignature.get(signature);
        if (same) same.push(part);
        else bySignature.set(signature, [part]);
      }
      for (const part of fresh) {
        const same = bySignature.get(signatureOf(part))?.pop();
        if (same) addDrawnAnew(part, same);
      }
      pairNeighbours(is, was);
    }

    /** What is left stands between parts that are known: what stood there before may be the same with a change. */
    function pairNeighbours(is: Part, was: Part): void {
      const places = new Map(was.parts.map((part, index) => [part, index]));
      let place = 0;
      for (const part of is.parts) {
        const known = pairs.get(part);
        if (known) {
          place = (places.get(known) ?? place - 1) + 1;
          continue;
        }
        const end = Math.min(was.parts.length, place + neighboursMax);
        for (let at = place; at < end && !taken.has(was.parts[at]!); at++) {
          if (!isSimilar(part, was.parts[at]!)) continue;
          addDrawnAnew(part, was.parts[at]!);
          place = at + 1;
          break;
        }
      }
    }

    for (const [element, part] of now.byElement) {
      const was = old.byElement.get(element);
      if (was) add(part, was);
    }
    for (const [is, was] of [...pairs]) pairChildren(is, was);
    return pairs;
  }

  return { pair };
}

export type Pairing = ReturnType<typeof createPairing>;
