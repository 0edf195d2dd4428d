/** Fields that are passed on where the price depends on them; dialects and the operator may add more. */

/** The first name that is not known, and why it is refused; null if all are known. */
export function unknownIn(
  names: Iterable<string>,
  known: readonly string[],
): { name: string; why: string } | null {
  for (const name of names)
    if (!known.includes(name)) return { name, why: `is not known here; known are ${known.join(", ")}` };
  return null;
}

export const CLIP_FIELDS = ["seed", "steps", "cfg", "duration", "resolution", "frames", "fps", "watermark"];

export type ClipMeasure = keyof typeof CLIP_MEASURES;
/** Fields of a clip that determine its price, under the names of vendors, engines and operators as `plainName` writes them. */
export const CLIP_MEASURES = {
  seconds:
    "duration durations durationsec durationsecs durationseconds seconds secs videoduration videodurationseconds " +
    "outputvideoduration videoseconds clipduration lengthseconds",
  milliseconds: "durationms durationmillis durationmilliseconds",
  framesPerSecond: "fps framerate framepersecond framespersecond videofps",
  frames:
    "frames framecount framenum nframes numframes numberofframes totalframes videoframes length videolength",
  clips:
    "n count quantity batchsize samplecount videocount numvideos numvideosperprompt numoutputs numsamples " +
    "numgenerations numresults numreturnsequences",
  width: "width videowidth",
  height: "height videoheight",
  size: "size videosize resolution videoresolution sr shortside shortedge",
  /** A resolution at some vendors; at others a level that does not change the price. */
  quality: "quality",
};

export const VOICE_SETTINGS = [
  ...["model", "modalities", "instructions", "voice", "input_audio_format", "output_audio_format"],
  ...["input_audio_transcription", "turn_detection", "tools", "tool_choice", "temperature"],
];
export const OPENAI_VOICE_SETTINGS = [
  ...["type", "output_modalities", "audio", "include", "parallel_tool_calls", "speed", "tracing"],
  ...["truncation", "input_audio_noise_reduction", "max_output_tokens", "max_response_output_tokens"],
  ...["conversation", "input", "metadata"],
];
