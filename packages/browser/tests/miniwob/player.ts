/** Plays one episode with the tools of an MCP client: looks with snapshots and HTML, acts with clicks and keys. */
import type { McpClient } from "../mcp-client.ts";
import { type Element, parse } from "./html.ts";

export interface Point {
  x: number;
  y: number;
}

export type Solve = (player: Player) => Promise<void>;

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

  async html(target: string): Promise<string> {
    let html = "";
    for (let offset: string | undefined = "0"; offset; ) {
      const text = (await this.call("dom", { target, offset: Number(offset) })).replace(/^### Result\n/, "");
      const more: RegExpExecArray | null = /\n… \d+ more characters, see offset (\d+)$/.exec(text);
      html += more ? text.slice(0, more.index) : text;
      offset = more?.[1];
    }
    return html;
  }

  async dom(target = "#area"): Promise<Element> {
    return parse(await this.html(target));
  }

  /** What is asked for. */
  async query(): Promise<string> {
    return (await this.dom("#query")).text;
  }

  /** What stands in quotes in the question. */
  async quoted(): Promise<string[]> {
    return [...(await this.query()).matchAll(/"([^"]*)"/g)].map((match) => match[1]!);
  }

  snapshot(args: object = {}): Promise<string> {
    return this.call("snapshot", args);
  }

  /** A picture of an element, as PNG. */
  async picture(target: string): Promise<Buffer> {
    const { content } = await this.#client.call("browser_screenshot", { target });
    const { data } = content[1] as unknown as { data: string };
    return Buffer.from(data, "base64");
  }

  click(target: string | Element, more: object = {}): Promise<string> {
    return this.call("click", { target: typeof target === "string" ? target : target.path, ...more });
  }

  clickAt(target: string | Element, position: Point, more: object = {}): Promise<string> {
    return this.click(target, { position, ...more });
  }

  hover(target: string | Element, more: object = {}): Promise<string> {
    return this.click(target, { action: "hover", ...more });
  }

  drag(target: string | Element, dragTo: object, more: object = {}): Promise<string> {
    return this.click(target, { dragTo, ...more });
  }

  type(target: string | Element | null, text: string, more: object = {}): Promise<string> {
    const where = target === null ? {} : { target: typeof target === "string" ? target : target.path };
    return this.call("type", { ...where, text, ...more });
  }

  keys(key: string, target?: string): Promise<string> {
    return this.call("press_key", target === undefined ? { key } : { key, target });
  }

  wait(ms: number): Promise<string> {
    return this.snapshot({ waitFor: { ms }, since: true });
  }

  /** Until there is an element that is asked for, or for two seconds. */
  visible(selector: string): Promise<string> {
    return this.snapshot({ waitFor: { selector, ms: 2_000 }, since: true });
  }

  /** What the page gave for the episode; null while it goes on. */
  async reward(): Promise<number | null> {
    const { text } = await this.dom("#reward-last");
    return text === "-" ? null : Number(text);
  }

  async isOver(): Promise<boolean> {
    return (await this.reward()) !== null;
  }

  submit(): Promise<string> {
    return this.click("#subbtn");
  }
}
