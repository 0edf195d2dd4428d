import type { MediaRates } from "../../../backends/contract.ts";
import { isObject } from "../../../kernel/json.ts";
import { plainName } from "../../../kernel/member-name.ts";

const PCM_SAMPLE_BYTES = 2;
const TELEPHONE_BYTES_PER_SECOND = 8_000;
/** A low bit rate for compressed speech, so that its duration is never underestimated. */
const COMPRESSED_BYTES_PER_SECOND = 2_000;
/** More than any vendor plays. */
const SPEED_MAX = 4;

type Direction = "input" | "output";
export type SaidBy = "client" | "upstream";
const DIRECTIONS = ["input", "output"] as const;

/** Objects are none, whatever their members would make of them. */
export const numberOf = (value: unknown): number => (typeof value === "object" ? Number.NaN : Number(value));
const bytesOfBase64 = (text: string): number => Math.floor((text.length * 3) / 4);

/** Turns audio into seconds, by the session's audio formats, and seconds into tokens. */
export class AudioFormats {
  /** There was sound. */
  isUsed = false;
  /** What is said to the model is also written down, by a model that the vendor bills as well. */
  isTranscribed = false;
  /** What the model that writes it down is told each time. */
  transcriptPrompt = "";
  /** The upstream responds to speech by itself. */
  answersSpeech = true;
  /** How much faster than it was written the output is played. */
  #speed = 1;
  readonly #usual: Readonly<Record<Direction, number>>;
  readonly #bytesPerSecond: Record<Direction, number>;

  constructor(readonly rates: MediaRates) {
    const { inputAudioHz, outputAudioHz } = rates;
    this.#usual = { input: inputAudioHz * PCM_SAMPLE_BYTES, output: outputAudioHz * PCM_SAMPLE_BYTES };
    this.#bytesPerSecond = { ...this.#usual };
  }

  /** Reads the audio formats of a session. What makes audio shorter, or cheaper, counts only once the upstream confirms it. */
  configure(session: Record<string, unknown>, saidBy: SaidBy): void {
    const audio = isObject(session.audio) ? session.audio : {};
    const input = isObject(audio.input) ? audio.input : {};
    const wish = input.transcription ?? session.input_audio_transcription;
    if ("transcription" in input || "input_audio_transcription" in session)
      this.isTranscribed = isObject(wish) || (saidBy === "client" && this.isTranscribed);
    const { prompt } = isObject(wish) ? wish : {};
    if (typeof prompt === "string" && (saidBy === "upstream" || prompt.length > this.transcriptPrompt.length))
      this.transcriptPrompt = prompt;
    const detection = "turn_detection" in input ? input.turn_detection : session.turn_detection;
    if (detection !== undefined)
      this.answersSpeech =
        (isObject(detection) && detection.create_response !== false) ||
        (saidBy === "client" && this.answersSpeech);
    const speed = numberOf(isObject(audio.output) ? (audio.output.speed ?? session.speed) : session.speed);
    if (speed > 0)
      this.#speed = Math.min(SPEED_MAX, Math.max(1, speed, saidBy === "client" ? this.#speed : 1));
    for (const direction of DIRECTIONS) {
      const side = isObject(audio[direction]) ? audio[direction] : {};
      for (const format of [session[`${direction}_audio_format`], side.format]) {
        const bytes = this.#bytesOf(format, direction);
        if (bytes === undefined) continue;
        const before = this.#bytesPerSecond[direction];
        this.#bytesPerSecond[direction] = saidBy === "client" ? Math.min(before, bytes) : bytes;
      }
    }
  }

  /** These, with what a client sets for one response alone. */
  with(response: Record<string, unknown>): AudioFormats {
    const formats = new AudioFormats(this.rates);
    Object.assign(formats.#bytesPerSecond, this.#bytesPerSecond);
    formats.#speed = this.#speed;
    formats.isUsed = this.isUsed;
    formats.configure(response, "client");
    return formats;
  }

  /** Bytes a second of a format; undefined when the value names none. */
  #bytesOf(format: unknown, direction: Direction): number | undefined {
    if (isObject(format)) {
      const bytes = this.#bytesOf(format.type, direction);
      const isPcm = bytes === this.#usual[direction];
      const hz = numberOf(format.rate);
      return isPcm && hz >= 1 ? Math.min(bytes, hz * PCM_SAMPLE_BYTES) : bytes;
    }
    if (typeof format !== "string" || format === "") return undefined;
    const name = plainName(format);
    if (/g711|pcmu|pcma|ulaw|alaw/.test(name)) return TELEPHONE_BYTES_PER_SECOND;
    return name.includes("pcm") || name.includes("wav")
      ? this.#usual[direction]
      : COMPRESSED_BYTES_PER_SECOND;
  }

  secondsOf(base64: string, direction: Direction): number {
    this.isUsed ||= base64 !== "";
    const speed = direction === "output" ? this.#speed : 1;
    return (bytesOfBase64(base64) / this.#bytesPerSecond[direction]) * speed;
  }

  tokensOf(seconds: number, direction: Direction): number {
    if (seconds <= 0) return 0;
    const { audioSecondsMin, inputAudioTokensPerSecond, outputAudioTokensPerSecond } = this.rates;
    const perSecond = direction === "input" ? inputAudioTokensPerSecond : outputAudioTokensPerSecond;
    return Math.ceil(Math.max(seconds, audioSecondsMin) * perSecond);
  }
}
