import { Told } from "../../lib/told.ts";

/** What the wire carries: PCM16, 16 kHz to the model and 24 kHz back. */
const TO_MODEL_HZ = 16_000;
const FROM_MODEL_HZ = 24_000;
const WORKLET = "/assets/voice-worklet.js";
const CHARACTERS_AT_ONCE = 0x8000;

export function toBase64(buffer: ArrayBuffer): string {
  const bytes = new Uint8Array(buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += CHARACTERS_AT_ONCE)
    text += String.fromCharCode(...bytes.subarray(at, at + CHARACTERS_AT_ONCE));
  return btoa(text);
}

export function pcmFromBase64(text: string): Float32Array<ArrayBuffer> {
  const raw = atob(text);
  const samples = new Float32Array(raw.length >> 1);
  for (let i = 0; i < samples.length; i++) {
    const value = raw.charCodeAt(i * 2) | (raw.charCodeAt(i * 2 + 1) << 8);
    samples[i] = (value >= 0x8000 ? value - 0x10000 : value) / 0x8000;
  }
  return samples;
}

/** The browser's refusals, explained. */
const REFUSALS: Readonly<Record<string, string>> = {
  NotAllowedError: "The browser was denied access to it; allow it for this page and start again.",
  NotFoundError: "None is connected, or the operating system blocks it.",
  NotReadableError: "Another program is using it.",
};

export interface Microphone {
  stop(): void;
}

/** Opens the microphone; each block comes as base64 PCM16 with its loudness of 0 to 1. */
export async function openMicrophone(onBlock: (audio: string, level: number) => void): Promise<Microphone> {
  if (!navigator.mediaDevices)
    throw new Told("No microphone", "Browsers allow it only on https pages and on localhost.");
  const stream = await navigator.mediaDevices
    .getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true } })
    .catch((error: DOMException) => {
      throw new Told("No microphone", REFUSALS[error.name] ?? error.message);
    });
  // The context resamples whatever the device delivers.
  const context = new AudioContext({ sampleRate: TO_MODEL_HZ });
  await context.audioWorklet.addModule(WORKLET);
  const sender = new AudioWorkletNode(context, "pcm-sender");
  sender.port.onmessage = ({ data }: MessageEvent<{ pcm: ArrayBuffer; level: number }>) =>
    onBlock(toBase64(data.pcm), data.level);
  context.createMediaStreamSource(stream).connect(sender);
  return {
    stop() {
      for (const track of stream.getTracks()) track.stop();
      void context.close();
    },
  };
}

/** Plays blocks one after another without gaps. */
export class Speaker {
  #context = new AudioContext({ sampleRate: FROM_MODEL_HZ });
  #until = 0;
  readonly #playing = new Set<AudioBufferSourceNode>();

  /** Queues a block and says how many seconds of sound it has. */
  play(audio: string): number {
    const samples = pcmFromBase64(audio);
    if (samples.length === 0) return 0;
    const buffer = this.#context.createBuffer(1, samples.length, FROM_MODEL_HZ);
    buffer.copyToChannel(samples, 0);
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#context.destination);
    source.onended = () => this.#playing.delete(source);
    this.#playing.add(source);
    this.#until = Math.max(this.#until, this.#context.currentTime);
    source.start(this.#until);
    this.#until += buffer.duration;
    return buffer.duration;
  }

  /** Drops queued audio: the user has begun to speak. */
  hush(): void {
    for (const source of this.#playing) source.stop();
    this.#playing.clear();
    this.#until = 0;
  }

  close(): void {
    void this.#context.close();
  }
}
