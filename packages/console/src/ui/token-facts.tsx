import { cachedShare, count, money, percent, savedInWords, withoutCost } from "../lib/format.ts";

interface Used {
  prompt_tokens: number;
  completion_tokens: number;
  cached_tokens: number;
  cache_write_tokens: number;
  reasoning_tokens: number;
  cache_saved_usd: number;
  estimated: boolean;
  unpriced: boolean;
}

/** What a request used and what that cost, in the list of its facts. */
export function TokenFacts({ used, costUsd }: { used: Used; costUsd: number | null }) {
  const { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens } = used;
  const share = cachedShare(used);
  const isCached = cached_tokens + cache_write_tokens > 0;
  return (
    <>
      <dt>Tokens in</dt>
      <dd>
        {count(prompt_tokens)}
        {used.estimated && <span className="muted"> (estimated: the upstream reported none)</span>}
      </dd>
      {isCached && (
        <>
          <dt>From the cache</dt>
          <dd>
            {count(cached_tokens)}
            {share !== null && <span className="muted"> ({percent(share)} of the prompt)</span>}
          </dd>
          <dt>Written to it</dt>
          <dd>{count(cache_write_tokens)}</dd>
          {costUsd !== null && (
            <>
              <dt>Caching</dt>
              <dd>{savedInWords(used.cache_saved_usd)}</dd>
            </>
          )}
        </>
      )}
      <dt>Tokens out</dt>
      <dd>
        {count(completion_tokens)}
        {reasoning_tokens > 0 && <span className="muted"> (reasoning: {count(reasoning_tokens)})</span>}
      </dd>
      <dt>Cost</dt>
      <dd>{costUsd === null ? withoutCost(used.unpriced) : money(costUsd)}</dd>
    </>
  );
}
