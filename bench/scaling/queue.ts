import { Seeded } from "@model-gateway/testing/seeded.ts";

/** A server that takes one thing after the other, and what those who come to it wait. */

export interface Spell {
  fromMs: number;
  untilMs: number;
}

export interface Load {
  /** Arrivals a second at a time. They come independently of each other, as those of many people do. */
  perSecond(atMs: number): number;
  /** How long each one keeps the server. */
  serviceMs: number;
  /** While these last the server does nothing. */
  outages: readonly Spell[];
  forMs: number;
}

/** Repeatable numbers from 0 to below 1. */
export function randomOf(seed: number): () => number {
  const seeded = new Seeded(seed);
  return () => seeded.next();
}

/** When each one came, and how long it was there, with its own service. */
export interface Visits {
  atMs: number[];
  stayMs: number[];
}

/** Every arrival, one by one: the server is free again when it has served all that came before. */
export function visit({ perSecond, serviceMs, outages, forMs }: Load, random: () => number): Visits {
  const visits: Visits = { atMs: [], stayMs: [] };
  let freeAtMs = 0;
  let nowMs = 0;
  for (;;) {
    nowMs += (-Math.log(1 - random()) * 1000) / perSecond(nowMs);
    if (nowMs >= forMs) return visits;
    let fromMs = Math.max(nowMs, freeAtMs);
    for (const outage of outages)
      if (fromMs < outage.untilMs && fromMs + serviceMs > outage.fromMs) fromMs = outage.untilMs;
    freeAtMs = fromMs + serviceMs;
    visits.atMs.push(nowMs);
    visits.stayMs.push(freeAtMs - nowMs);
  }
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** The stays of those who came within a spell. */
export const staysIn = ({ atMs, stayMs }: Visits, { fromMs, untilMs }: Spell): number[] =>
  stayMs.filter((_, index) => atMs[index]! >= fromMs && atMs[index]! < untilMs);
