/**
 * Imported before every schema: they are then interpreted instead of being compiled at their first use. A tool that
 * checks a handful of small messages is done before the compiling would be.
 */
import { z } from "zod";

z.config({ jitless: true });
