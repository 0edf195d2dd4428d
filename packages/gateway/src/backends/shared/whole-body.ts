/** A whole body, or null when it is larger than `bytesMax`. */
export async function wholeBody(response: Response, bytesMax: number): Promise<Buffer | null> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    size += piece.length;
    if (size > bytesMax) return null;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}
