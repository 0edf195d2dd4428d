/** A small strategy for each task. */
import type { Solve } from "./player.ts";
import { apps } from "./tasks/apps.ts";
import { clicks } from "./tasks/clicks.ts";
import { drags } from "./tasks/drags.ts";
import { forms } from "./tasks/forms.ts";
import { games } from "./tasks/games.ts";
import { mail } from "./tasks/mail.ts";
import { shapes } from "./tasks/shapes.ts";

export const tasks: Record<string, Solve> = {
  ...apps,
  ...clicks,
  ...drags,
  ...forms,
  ...games,
  ...mail,
  ...shapes,
};
