/** Fields that pass, of work whose price depends on its fields; each dialect adds its own, and the operator may. */

/** Of a clip's `extra`. What they mean for length, size and count is read from what is sent. */
export const CLIP_FIELDS = ["seed", "steps", "cfg", "duration", "resolution", "frames", "fps", "watermark"];

/** Of a voice session or a response in it. */
export const VOICE_SETTINGS = [
  ...["model", "modalities", "instructions", "voice", "input_audio_format", "output_audio_format"],
  ...["input_audio_transcription", "turn_detection", "tools", "tool_choice", "temperature"],
];
export const OPENAI_VOICE_SETTINGS = [
  ...["type", "output_modalities", "audio", "include", "parallel_tool_calls", "prompt", "speed", "tracing"],
  ...["truncation", "input_audio_noise_reduction", "max_output_tokens", "max_response_output_tokens"],
  ...["conversation", "input", "metadata"],
];
