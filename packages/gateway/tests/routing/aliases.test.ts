import { expect, test } from "bun:test";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { Aliases } from "../../src/rooms/routing/aliases.ts";

test("instances on one bus share their aliases, also with one that joins later", async () => {
  const bus = new InProcessBus();
  const [one, two] = [new Aliases(bus), new Aliases(bus)];
  one.set("fast", "small-model");
  two.set("deep", "large-model");
  expect(one.resolve("deep")).toBe("large-model");
  expect(two.list()).toEqual(one.list());
  const late = new Aliases(bus);
  await Promise.resolve();
  expect(late.list()).toEqual(one.list());
  two.remove("fast");
  expect(late.resolve("fast")).toBe("fast");
});
