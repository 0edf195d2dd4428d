/**
 * Loaded before the service by its process, which then dies as by `kill -9` right before or right after it writes
 * usage lines for the nth time: DIES_AT_WRITE is `before 7` or `after 7`.
 */
import { Segment } from "../../../packages/gateway/src/rooms/metering/journal/segment.ts";

const [when, nth] = (process.env.DIES_AT_WRITE ?? "").split(" ");
const write = Segment.prototype.append;
const die = () => process.kill(process.pid, "SIGKILL");
let writes = 0;

if (when)
  Segment.prototype.append = function (lines) {
    const isLast = ++writes === Number(nth);
    if (isLast && when === "before") die();
    const isWritten = write.call(this, lines);
    if (isLast) die();
    return isWritten;
  };
