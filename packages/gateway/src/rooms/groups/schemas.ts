import { z } from "zod";

export const DAY_SECONDS = 24 * 3600;
const POINTS_MAX = 1_000_000_000_000;

export const GroupId = z.guid().toLowerCase();
export const Points = z.int().min(1).max(POINTS_MAX);
export const Note = z.string().trim().max(200).optional();
