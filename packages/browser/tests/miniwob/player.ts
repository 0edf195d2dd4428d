/** Plays one episode with the tools of an MCP client: looks with snapshots, acts with clicks and keys. */
import type { McpClient } from "../mcp-client.ts";
import { Part, type Point, readSnapshot } from "./screen.ts";

export type Solve = (player: Player) => Promise<void>;

/** A look at the page of a task. */
export class Screen {
  /** What is asked for; colours and icons in it are parts of it. */
  readonly query: Part;
  /** All the rest, but for the panel with the reward and the time. */
  readonly area: Part;
  readonly reward: string;

  constructor(page: Part) {
    const body = page.parts[0]!;
    const panel = body.parts.find((part) => part.text.includes("Last reward"));
    this.reward = /Last reward: (\S+)/.exec(panel?.text ?? "")?.[1] ?? "-";
    const isTask = ({ box }: Part) => box.x === 0 && box.y === 0 && box.width === 160;
    const wrap = body.parts.find(isTask) ?? body;
    this.query = wrap.parts.find(isTask) ?? wrap;
    this.area = new Part("area", null);
    const rest = wrap.parts.filter((part) => part !== this.query);
    const others = body.parts.filter(
      (part) => part !== wrap && part !== panel && !part.hint.includes("#click-canvas"),
    );
    this.area.parts.push(...(this.query === wrap ? [] : rest), ...others);
  }

  get isOver(): boolean {
    return this.reward !== "-";
  }

  /** What stands in quotes in the question. */
  get quoted(): string[] {
    return [...this.query.text.matchAll(/"([^"]*)"/g)].map((match) => match[1]!);
  }

  all(...roles: string[]): Part[] {
    return this.area.all(...roles);
  }

  /** The one thing of this role with this name or text; the first one without. */
  one(role: string, text?: string): Part {
    const found = this.all(role).find(
      (part) => text === undefined || part.name === text || part.text === text,
    );
    if (!found) throw new Error(`no ${role} ${text ?? ""}`);
    return found;
  }

  /** What has this text and can be acted on, the innermost one. */
  said(text: string): Part | undefined {
    return this.area.inside.findLast((part) => part.ref !== "" && part.text === text);
  }
}

export class Player {
  readonly #client: McpClient;

  constructor(client: McpClient) {
    this.#client = client;
  }

  /** The text of a result; a call that fails ends the episode with its words. */
  async call(tool: string, args: object): Promise<string> {
    const { text, isError } = await this.#client.call(`browser_${tool}`, args);
    if (isError) throw new Error(`${tool} ${JSON.stringify(args)}: ${text.slice(0, 300)}`);
    return text;
  }

  async look(): Promise<Screen> {
    return new Screen(readSnapshot(await this.call("snapshot", { boxes: true })));
  }

  /** Looks until there is what is looked for, or for two seconds. */
  async until<T>(find: (screen: Screen) => T | undefined | false): Promise<T> {
    for (const begun = performance.now(); performance.now() - begun < 2_000; ) {
      const found = find(await this.look());
      if (found) return found;
    }
    throw new Error("it did not show up");
  }

  /** A picture of an element, as PNG. */
  async picture({ ref }: Part): Promise<Buffer> {
    const { content } = await this.#client.call("browser_screenshot", { target: ref });
    const { data } = content[1] as unknown as { data: string };
    return Buffer.from(data, "base64");
  }

  click({ ref }: Part, more: object = {}): Promise<string> {
    return this.call("click", { target: ref, ...more });
  }

  /** A click, or another action, at a place of the page. */
  at(position: Point, more: object = {}): Promise<string> {
    return this.call("click", { position, ...more });
  }

  hover(part: Part, more: object = {}): Promise<string> {
    return this.click(part, { action: "hover", ...more });
  }

  type(part: Part | null, text: string, more: object = {}): Promise<string> {
    return this.call("type", { ...(part ? { target: part.ref } : {}), text, ...more });
  }

  keys(key: string, part?: Part): Promise<string> {
    return this.call("press_key", part ? { key, target: part.ref } : { key });
  }

  wait(ms: number): Promise<string> {
    return this.call("snapshot", { waitFor: { ms }, since: true });
  }

  async submit(name = "Submit"): Promise<void> {
    await this.click((await this.look()).one("button", name));
  }
}
