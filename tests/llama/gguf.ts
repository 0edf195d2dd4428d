/**
 * A tiny model of llama's architecture in a GGUF file: random weights, always the same ones, and a tokenizer that
 * knows every byte and a few words. It says words for as long as it is let.
 */
const WIDTH = 32;
const HEADS = 2;
const LAYERS = 2;
const HIDDEN = 64;
export const TRAINED_CONTEXT = 4_096;

const VERSION = 3;
const ALIGNMENT = 32;
/** Types of values, as the format numbers them. */
const U32 = 4;
const I32 = 5;
const F32 = 6;
const TEXT = 8;
const LIST = 9;
/** Of tensors. */
const TENSOR_F32 = 0;

/** Kinds of tokens. */
const NORMAL = 1;
const UNKNOWN = 2;
const CONTROL = 3;
const BYTE = 6;

interface Token {
  text: string;
  score: number;
  kind: number;
}

function vocabulary(): Token[] {
  const tokens: Token[] = [
    { text: "<unk>", score: 0, kind: UNKNOWN },
    { text: "<s>", score: 0, kind: CONTROL },
    { text: "</s>", score: 0, kind: CONTROL },
  ];
  for (let byte = 0; byte < 256; byte++)
    tokens.push({ text: `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`, score: 0, kind: BYTE });
  for (const first of "bdfgklmnprstvz")
    for (const second of "aeiou") tokens.push({ text: `▁${first}${second}`, score: -1, kind: NORMAL });
  return tokens;
}

/** The same numbers on every machine: between -1 and 1. */
function* noise(): Generator<number, never> {
  let state = 42;
  for (;;) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    yield state / 2 ** 31 - 1;
  }
}

class Bytes {
  readonly #parts: Buffer[] = [];
  length = 0;

  add(part: Buffer): this {
    this.#parts.push(part);
    this.length += part.length;
    return this;
  }
  u32(value: number): this {
    const part = Buffer.alloc(4);
    part.writeUInt32LE(value);
    return this.add(part);
  }
  u64(value: number): this {
    const part = Buffer.alloc(8);
    part.writeBigUInt64LE(BigInt(value));
    return this.add(part);
  }
  f32(value: number): this {
    const part = Buffer.alloc(4);
    part.writeFloatLE(value);
    return this.add(part);
  }
  text(value: string): this {
    return this.u64(Buffer.byteLength(value)).add(Buffer.from(value));
  }
  pad(): this {
    return this.add(Buffer.alloc((ALIGNMENT - (this.length % ALIGNMENT)) % ALIGNMENT));
  }
  whole(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

type Setting = readonly [name: string, write: (bytes: Bytes) => void];
const u32 = (name: string, value: number): Setting => [name, (bytes) => bytes.u32(U32).u32(value)];
const f32 = (name: string, value: number): Setting => [name, (bytes) => bytes.u32(F32).f32(value)];
const text = (name: string, value: string): Setting => [name, (bytes) => bytes.u32(TEXT).text(value)];
const list = <Item>(
  name: string,
  [type, write]: readonly [number, (bytes: Bytes, item: Item) => void],
  items: readonly Item[],
): Setting => [
  name,
  (bytes) => {
    bytes.u32(LIST).u32(type).u64(items.length);
    for (const item of items) write(bytes, item);
  },
];

const settings = (tokens: readonly Token[]): Setting[] => [
  text("general.architecture", "llama"),
  text("general.name", "tiny"),
  u32("llama.context_length", TRAINED_CONTEXT),
  u32("llama.embedding_length", WIDTH),
  u32("llama.block_count", LAYERS),
  u32("llama.feed_forward_length", HIDDEN),
  u32("llama.attention.head_count", HEADS),
  u32("llama.rope.dimension_count", WIDTH / HEADS),
  f32("llama.attention.layer_norm_rms_epsilon", 1e-5),
  text("tokenizer.ggml.model", "llama"),
  list("tokenizer.ggml.tokens", [TEXT, (bytes, { text }) => bytes.text(text)], tokens),
  list("tokenizer.ggml.scores", [F32, (bytes, { score }) => bytes.f32(score)], tokens),
  list("tokenizer.ggml.token_type", [I32, (bytes, { kind }) => bytes.u32(kind)], tokens),
  u32("tokenizer.ggml.unknown_token_id", 0),
  u32("tokenizer.ggml.bos_token_id", 1),
  u32("tokenizer.ggml.eos_token_id", 2),
  text(
    "tokenizer.chat_template",
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:",
  ),
];

interface Tensor {
  name: string;
  /** Columns, then rows. */
  shape: readonly number[];
  valueAt(index: number): number;
}

function tensors(tokens: readonly Token[]): Tensor[] {
  const random = noise();
  const matrix = (name: string, columns: number, rows: number): Tensor => ({
    name,
    shape: [columns, rows],
    valueAt: () => random.next().value / Math.sqrt(columns),
  });
  const ones = (name: string): Tensor => ({ name, shape: [WIDTH], valueAt: () => 1 });
  const layers = Array.from({ length: LAYERS }, (_, i) => [
    ones(`blk.${i}.attn_norm.weight`),
    ...["q", "k", "v", "output"].map((part) => matrix(`blk.${i}.attn_${part}.weight`, WIDTH, WIDTH)),
    ones(`blk.${i}.ffn_norm.weight`),
    matrix(`blk.${i}.ffn_gate.weight`, WIDTH, HIDDEN),
    matrix(`blk.${i}.ffn_up.weight`, WIDTH, HIDDEN),
    matrix(`blk.${i}.ffn_down.weight`, HIDDEN, WIDTH),
  ]);
  const output = matrix("output.weight", WIDTH, tokens.length);
  return [
    matrix("token_embd.weight", WIDTH, tokens.length),
    ...layers.flat(),
    ones("output_norm.weight"),
    {
      ...output,
      // Only words are ever said: neither single bytes nor the end.
      valueAt: (index) => {
        const value = output.valueAt(index);
        return tokens[Math.floor(index / WIDTH)]!.kind === NORMAL ? value * 8 : 0;
      },
    },
  ];
}

export function tinyModel(): Buffer {
  const tokens = vocabulary();
  const written = settings(tokens);
  const parts = tensors(tokens);
  const head = new Bytes().add(Buffer.from("GGUF")).u32(VERSION).u64(parts.length).u64(written.length);
  for (const [name, write] of written) {
    head.text(name);
    write(head);
  }
  const data = new Bytes();
  for (const { name, shape, valueAt } of parts) {
    head.text(name).u32(shape.length);
    for (const size of shape) head.u64(size);
    head.u32(TENSOR_F32).u64(data.length);
    const count = shape.reduce((product, size) => product * size, 1);
    data.add(Buffer.from(Float32Array.from({ length: count }, (_, index) => valueAt(index)).buffer)).pad();
  }
  return Buffer.concat([head.pad().whole(), data.whole()]);
}
