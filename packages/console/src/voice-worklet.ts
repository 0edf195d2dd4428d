/** Runs on the audio thread: microphone samples in, blocks of PCM16 and their loudness out. */
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, processor: new () => AudioWorkletProcessor): void;

/** 40 ms at 16 kHz: small enough to talk over, large enough not to flood the connection. */
const BLOCK_SAMPLES = 640;

class PcmSender extends AudioWorkletProcessor {
  #block = new Int16Array(BLOCK_SAMPLES);
  #filled = 0;
  #energy = 0;

  process(inputs: Float32Array[][]): boolean {
    for (const sample of inputs[0]?.[0] ?? []) {
      const bounded = Math.max(-1, Math.min(1, sample));
      this.#block[this.#filled++] = bounded * 0x7fff;
      this.#energy += bounded * bounded;
      if (this.#filled === BLOCK_SAMPLES) this.#flush();
    }
    return true;
  }

  #flush(): void {
    this.port.postMessage({ pcm: this.#block.buffer, level: Math.sqrt(this.#energy / BLOCK_SAMPLES) }, [
      this.#block.buffer,
    ]);
    this.#block = new Int16Array(BLOCK_SAMPLES);
    this.#filled = 0;
    this.#energy = 0;
  }
}

registerProcessor("pcm-sender", PcmSender);
