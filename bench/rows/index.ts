import type { Row } from "../lib/bench.ts";
import { rows as board } from "./board.ts";
import { rows as cores } from "./cores.ts";
import { rows as growth } from "./growth.ts";
import { rows as idle } from "./idle.ts";
import { rows as loads } from "./loads.ts";
import { rows as quiet } from "./quiet.ts";
import { rows as rpc } from "./rpc.ts";
import { rows as session } from "./session.ts";
import { rows as sharing } from "./sharing.ts";
import { rows as soak } from "./soak.ts";
import { rows as start } from "./start.ts";
import { rows as tunnel } from "./tunnel.ts";
import { rows as workers } from "./workers.ts";

export const rows: readonly Row[] = [
  ...loads,
  ...board,
  ...session,
  ...quiet,
  ...rpc,
  ...idle,
  ...start,
  ...growth,
  ...soak,
  ...sharing,
  ...workers,
  ...cores,
  ...tunnel,
];
