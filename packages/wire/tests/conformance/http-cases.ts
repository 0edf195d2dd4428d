/**
 * Requests, and what the server makes of them. The facts (which forms and mistakes there are) are those of the request
 * fixtures of github.com/nodejs/llhttp, in their strict reading; the requests are our own. Where we are stricter, the
 * case says so: every HTTP/1.1 request has a host, a target has no fragment and no user, and CONNECT is not served.
 */
export interface HttpCase {
  what: string;
  request: string;
  /** What is answered, in order: the echo of a request (method, path?query, body), or the status of a refusal. */
  answers: readonly (string | number)[];
  /** The connection stays open after the last answer. */
  stays?: boolean;
}

const HOST = "Host: a.example\r\n";

/** One request that is answered with its echo. */
const good = (what: string, request: string, echo: string, stays = true): HttpCase => ({
  what,
  request,
  answers: [echo],
  stays,
});
/** One that is refused, whatever comes behind it. */
const bad = (what: string, request: string, status = 400): HttpCase => ({ what, request, answers: [status] });

const METHODS = [
  "DELETE",
  "GET",
  "POST",
  "PUT",
  "OPTIONS",
  "TRACE",
  "PATCH",
  "PURGE",
  "SEARCH",
  "QUERY",
].concat(
  ["LINK", "UNLINK", "SOURCE", "REPORT", "MKCOL", "COPY", "LOCK", "M-SEARCH", "BIND", "ACL", "PROPPATCH"],
  ["MKCALENDAR", "MKACTIVITY", "CHECKOUT", "MERGE", "NOTIFY", "SUBSCRIBE", "REBIND"],
);

const methods: HttpCase[] = [
  ...METHODS.map((method) =>
    good(`the method ${method}`, `${method} /m HTTP/1.1\r\n${HOST}\r\n`, `${method} /m?\n`),
  ),
  good(
    "a method with a body",
    `PATCH /f.txt HTTP/1.1\r\n${HOST}If-Match: "e1"\r\nContent-Length: 6\r\n\r\npieces`,
    "PATCH /f.txt?\npieces",
  ),
  good(
    "a header twice",
    `LINK /dog.jpg HTTP/1.1\r\n${HOST}Link: <http://b/1>; rel="tag"\r\nLink: <http://b/2>; rel="tag"\r\n\r\n`,
    "LINK /dog.jpg?\n",
  ),
  // A method that nobody has heard of is the handler's to refuse: it is a token.
  good("a method of no standard", `MKCOLX / HTTP/1.1\r\n${HOST}\r\n`, "MKCOLX /?\n"),
  bad("CONNECT", "CONNECT b.example:443 HTTP/1.0\r\nUser-Agent: x\r\n\r\nsome data"),
  bad("CONNECT in capitals", "CONNECT B.EXAMPLE:443 HTTP/1.0\r\n\r\n"),
  bad("CONNECT with a length", "CONNECT b.example:443 HTTP/1.0\r\nContent-Length: 4\r\n\r\ndata"),
  bad("CONNECT to a host with an underscore", "CONNECT b_1.example:443 HTTP/1.0\r\n\r\n"),
  bad("a star for a target", `M-SEARCH * HTTP/1.1\r\n${HOST}\r\n`),
  bad("the preface of HTTP/2 as HTTP/1.1", "PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n"),
];

const protocols: HttpCase[] = [
  bad("ICE", `SOURCE /music ICE/1.0\r\n${HOST}\r\n`),
  bad("ICE with GET", `GET /music ICE/1.0\r\n${HOST}\r\n`),
  bad("nearly HTTP", `GET /music XHTTP/1.0\r\n${HOST}\r\n`),
  bad("RTSP", `OPTIONS /music RTSP/1.0\r\n${HOST}\r\n`),
  bad("RTSP with PUT", `PUT /music RTSP/1.0\r\n${HOST}\r\n`),
  bad("a later version", `GET / HTTP/4.5\r\n${HOST}\r\n`, 505),
  bad("no version", "GET /\r\n\r\n"),
  bad("a carriage return instead of a line end", `GET / HTTP/1.1\rLine: 1\r\n${HOST}\r\n`),
  bad("a line feed instead of a line end", `GET / HTTP/1.1\n${HOST}\r\n`),
];

const connections: HttpCase[] = [
  good("keep-alive", `PUT /k HTTP/1.1\r\n${HOST}Connection: keep-alive\r\n\r\n`, "PUT /k?\n"),
  {
    what: "keep-alive twice",
    request: `PUT /k HTTP/1.1\r\n${HOST}Connection: keep-alive\r\n\r\n`.repeat(2),
    answers: ["PUT /k?\n", "PUT /k?\n"],
    stays: true,
  },
  {
    what: "a request behind one of HTTP/1.0 is not read",
    request: `PUT /k HTTP/1.0\r\n\r\nPUT /smuggled HTTP/1.1\r\n${HOST}\r\n`,
    answers: ["PUT /k?\n"],
  },
  {
    what: "a length of nothing in HTTP/1.0, and chunks behind it",
    request: `PUT /k HTTP/1.0\r\nContent-Length: 0\r\n\r\nPUT /smuggled HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n`,
    answers: ["PUT /k?\n"],
  },
  {
    what: "an empty line between two requests",
    request: `POST / HTTP/1.1\r\n${HOST}Content-Length: 3\r\n\r\nx=7\r\nGET /next HTTP/1.1\r\n${HOST}\r\n`,
    answers: ["POST /?\nx=7", "GET /next?\n"],
    stays: true,
  },
  bad("a carriage return in keep-alive", `PUT /k HTTP/1.1\r\n${HOST}Connection: keep\ralive\r\n\r\n`),
  good("close", `PUT /k HTTP/1.1\r\n${HOST}Connection: close\r\n\r\n`, "PUT /k?\n", false),
  good("close and a tab", `PUT /k HTTP/1.1\r\n${HOST}Connection: close\t\r\n\r\n`, "PUT /k?\n", false),
  {
    what: "a request behind close is not read",
    request: `POST / HTTP/1.1\r\n${HOST}Content-Length: 3\r\nConnection: close\r\n\r\nx=7\r\nGET /smuggled HTTP/1.1\r\n${HOST}\r\n`,
    answers: ["POST /?\nx=7"],
  },
  {
    what: "a request behind close and a tab is not read",
    request: `POST / HTTP/1.1\r\n${HOST}Content-Length: 3\r\nConnection: close\t\r\n\r\nx=7\r\nGET /smuggled HTTP/1.1\r\n${HOST}\r\n`,
    answers: ["POST /?\nx=7"],
  },
  good(
    "close among other words",
    `PUT /k HTTP/1.1\r\n${HOST}Connection: a, close, upgrade, keep-alive\r\n\r\n`,
    "PUT /k?\n",
    false,
  ),
  good(
    "an upgrade that nobody takes",
    `PUT /k HTTP/1.1\r\n${HOST}Connection: upgrade\r\nUpgrade: ws\r\n\r\n`,
    "PUT /k?\n",
  ),
  good(
    "an upgrade with a body",
    `POST /k HTTP/1.1\r\n${HOST}Connection: Upgrade\r\nUpgrade: HTTP/2.0\r\nContent-Length: 4\r\n\r\nbody`,
    "POST /k?\nbody",
  ),
  {
    what: "what follows an upgrade that nobody takes is a request, or nothing",
    request: `GET /k HTTP/1.1\r\n${HOST}Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n\r\nnot a request\r\n\r\n`,
    answers: ["GET /k?\n", 400],
  },
  bad(
    "a blank before the colon of connection",
    `PUT /k HTTP/1.1\r\n${HOST}Connection : upgrade\r\nContent-Length: 4\r\n\r\nabcd`,
  ),
  bad("a folded connection", `GET /k HTTP/1.1\r\n${HOST}Connection: a,\r\n Upgrade\r\n\r\n`),
  bad("a folded connection behind a blank", `GET /k HTTP/1.1\r\n${HOST}Connection: a, \r\n upgrade\r\n\r\n`),
];

const lengths: HttpCase[] = [
  good(
    "a length with zeros before it",
    `PUT /l HTTP/1.1\r\n${HOST}Content-Length: 004\r\n\r\nabcd`,
    "PUT /l?\nabcd",
  ),
  good(
    "headers behind the length",
    `PUT /l HTTP/1.1\r\n${HOST}Content-Length: 4\r\nX: y\r\n\r\nabcd`,
    "PUT /l?\nabcd",
  ),
  good(
    "a length in any case, in HTTP/1.0",
    "GET /l HTTP/1.0\r\ncoNTent-LENgth: 5\r\n\r\nHELLO",
    "GET /l?\nHELLO",
    false,
  ),
  good("blanks around a length", `POST /l HTTP/1.1\r\n${HOST}Content-Length:  2 \r\n\r\nok`, "POST /l?\nok"),
  good("tabs around a length", `POST /l HTTP/1.1\r\n${HOST}Content-Length:\t2\t  \r\n\r\nok`, "POST /l?\nok"),
  bad(
    "a length that no number holds",
    `PUT /l HTTP/1.1\r\n${HOST}Content-Length: 3000000000000000000000\r\n\r\n`,
  ),
  bad("two lengths", `PUT /l HTTP/1.1\r\n${HOST}Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc`),
  bad(
    "a length and identity",
    `PUT /l HTTP/1.1\r\n${HOST}Content-Length: 2\r\nTransfer-Encoding: identity\r\n\r\n`,
    501,
  ),
  bad("a blank before the colon of a length", `PUT /l HTTP/1.1\r\n${HOST}Content-Length : 4\r\n\r\nabcd`),
  bad("a blank in a length", `POST /l HTTP/1.1\r\n${HOST}Content-Length: 2 4\r\n\r\n`),
  bad("a blank in a longer length", `POST /l HTTP/1.1\r\n${HOST}Content-Length: 24 42\r\n\r\n`),
  bad("an empty length", `POST /l HTTP/1.1\r\n${HOST}Content-Length:\r\n\r\n`),
  bad("a carriage return for a dash", `PUT /l HTTP/1.1\r\n${HOST}Content\rLength: 4\r\n\r\nabcd`),
  bad("a carriage return before the body", `PUT /l HTTP/1.1\r\n${HOST}Content-Length: 4\r\n\rabcd\r\n\r\n`),
];

const headers: HttpCase[] = [
  good("a tab before a value", `OPTIONS /h HTTP/1.1\r\n${HOST}A: b\r\nC:\t d\r\n\r\n`, "OPTIONS /h?\n"),
  good(
    "a host with an equals sign",
    "GET /h HTTP/1.1\r\nHost: 0.0.0.0=7000\r\nAccept: */*\r\n\r\n",
    "GET /h?\n",
  ),
  good(
    "the headers of a browser",
    `GET /favicon.ico HTTP/1.1\r\n${HOST}User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html,*/*;q=0.8\r\nAccept-Language: nb,en;q=0.5\r\nKeep-Alive: 115\r\nConnection: keep-alive\r\n\r\n`,
    "GET /favicon.ico?\n",
  ),
  good("signs in a value", `GET /h HTTP/1.1\r\n${HOST}bbbbbbb:++++++++\r\n\r\n`, "GET /h?\n"),
  good("HTTP/1.0 with a host", "GET /h HTTP/1.0\r\nHost: 0.0.0.0:7000\r\n\r\n", "GET /h?\n", false),
  good("an empty line first", `\r\nGET /h HTTP/1.1\r\n${HOST}\r\n`, "GET /h?\n"),
  good("letters beyond ASCII in a value", `GET /h HTTP/1.1\r\n${HOST}City: Troms\xf8\r\n\r\n`, "GET /h?\n"),
  good("the last byte in a value", `OPTIONS /h HTTP/1.1\r\n${HOST}A: \xffb\r\n\r\n`, "OPTIONS /h?\n"),
  bad("no headers at all, so no host", "GET /h HTTP/1.1\r\n\r\n"),
  bad("headers but no host", "GET /h HTTP/1.1\r\nAccept: */*\r\n\r\n"),
  bad("a form feed in a value", `GET /h HTTP/1.1\r\n${HOST}A: b\fc\r\n\r\n`),
  bad("a form feed for a value", `GET /h HTTP/1.1\r\n${HOST}A: \f\r\n\r\n`),
  {
    what: "a form feed in the second request",
    request: `GET /h HTTP/1.1\r\n${HOST}A: fine\r\n\r\nGET /h HTTP/1.1\r\n${HOST}A: \f\r\n\r\n`,
    answers: ["GET /h?\n", 400],
  },
  bad("headers that a carriage return separates", `GET /h HTTP/1.1\r\n${HOST}A: 1\rB: 2\r\n\r\n`),
  bad(
    "an encoding behind a line feed",
    `POST /h HTTP/1.1\r\n${HOST}x:x\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n`,
  ),
  bad(
    "a request behind a carriage return",
    `GET /h HTTP/1.1\r\nConnection: close\r\n${HOST}\rZGET /smuggled HTTP/1.1\r\n${HOST}\r\n`,
  ),
  bad(
    "an encoding behind a carriage return",
    `POST /h HTTP/1.1\r\n${HOST}x:\rTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n`,
  ),
  bad(
    "an encoding behind a line feed and no value",
    `POST /h HTTP/1.1\r\n${HOST}x:\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n`,
  ),
  bad("an at sign in a name", `GET /h HTTP/1.1\r\n${HOST}Ab@: c\r\n\r\n`),
  bad("a control character in a name", `GET /h HTTP/1.1\r\n${HOST}Ab\x01\tc: d\r\n\r\n`),
  bad("no name", `GET /h HTTP/1.1\r\n${HOST}: c\r\n\r\n`),
  bad("a folded name", `GET /h HTTP/1.1\r\n${HOST}name\r\n : value\r\n\r\n`),
  bad(
    "a broken connection header",
    `GET /h HTTP/1.1\r\n${HOST}Connection\r\x1b5\xd5eep-Alive\r\nX: y\r\n\r\n`,
  ),
  bad("a broken header", `GET /h HTTP/1.1\r\n${HOST}X-Any\r\x1b5\xd5eep-Alive\r\nX: y\r\n\r\n`),
  bad(
    "a length behind a line feed",
    `GET /h HTTP/1.1\r\n${HOST}X: x\nContent-Length: 20\r\n\r\nGET /smuggled HTTP/1.1\r\n${HOST}\r\n`,
  ),
  bad("a blank behind the request line", `GET /h HTTP/1.1\r\n ${HOST}\r\n`),
  bad("line feeds only", "POST /h HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n1\nA\n0\n\n"),
  bad(
    "a folded length",
    `POST /h HTTP/1.1\r\n${HOST}A: b\r\n Content-Length: 30\r\n\r\nGET /smuggled HTTP/1.1\r\n${HOST}\r\n`,
  ),
  bad("folded values", `GET /h HTTP/1.1\r\n${HOST}A:   b\r\n\tc\r\n d\r\nConnection:\r\n close\r\n\r\n`),
  bad("values folded with line feeds", `GET /h HTTP/1.1\r\n${HOST}A:   b\n\tc\n d\n\r\n`),
  bad(
    "a certificate over several lines",
    `GET /h HTTP/1.1\r\n${HOST}X-Certificate: -----BEGIN-----\r\n\tAAAA\r\n\t-----END-----\r\n\r\n`,
  ),
];

const chunkedPost = (body: string, more = ""): string =>
  `POST /c HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n${more}\r\n${body}`;

const encodings: HttpCase[] = [
  good("a small letter in a size", chunkedPost("b\r\n0123456789a\r\n0\r\n\r\n"), "POST /c?\n0123456789a"),
  good("a capital in a size", chunkedPost("B\r\n0123456789a\r\n0\r\n\r\n"), "POST /c?\n0123456789a"),
  good(
    "a size of two digits",
    chunkedPost(`1c\r\n${"z".repeat(28)}\r\n0\r\n\r\n`),
    `POST /c?\n${"z".repeat(28)}`,
  ),
  good(
    "two chunks and three zeros",
    chunkedPost("4\r\ngood\r\n5\r\n work\r\n000\r\n\r\n"),
    "POST /c?\ngood work",
  ),
  good(
    "trailers",
    chunkedPost("4\r\ngood\r\n0\r\nVary: *\r\nContent-Type: text/plain\r\n\r\n"),
    "POST /c?\ngood",
  ),
  good(
    "extensions",
    chunkedPost("4;fast;really=yes;other=too\r\ngood\r\n5;b;c\r\n work\r\n0\r\n\r\n"),
    "POST /c?\ngood work",
  ),
  good(
    "quoted extensions",
    chunkedPost('4;a="b \\"c\\"; \\\\d\\\\";e="f";g;h=i\r\ngood\r\n0\r\n\r\n'),
    "POST /c?\ngood",
  ),
  bad("an extension without a semicolon", chunkedPost("2 abc\r\nok\r\n0 abc\r\n\r\n")),
  bad("a semicolon without an extension", chunkedPost("2;\r\nok\r\n0\r\n\r\n")),
  bad("two semicolons", chunkedPost("2;;a\r\nok\r\n0\r\n\r\n")),
  bad("an extension without a value behind its equals sign", chunkedPost("2;a=\r\nok\r\n0\r\n\r\n")),
  bad("an extension whose quotes are not closed", chunkedPost('4;a="b";c="d; e\r\ngood\r\n0\r\n\r\n')),
  bad("a blank in an extension", chunkedPost("4;a b\r\ngood\r\n0\r\n\r\n")),
  bad("an encoding of pigeons", `PUT /c HTTP/1.1\r\n${HOST}Transfer-Encoding: pigeons\r\n\r\n`, 501),
  bad(
    "identity and a length",
    `POST /c HTTP/1.1\r\n${HOST}Transfer-Encoding: identity\r\nContent-Length: 4\r\n\r\ngood`,
    501,
  ),
  bad(
    "empty encodings and a length",
    `POST /c HTTP/1.1\r\n${HOST}Content-Length: 10\r\nTransfer-Encoding:\r\nTransfer-Encoding:\r\n\r\n2\r\nAA\r\n0\r\n`,
    501,
  ),
  bad(
    "chunked before another encoding",
    `POST /c HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked, deflate\r\n\r\nWorld`,
    501,
  ),
  bad(
    "chunked in a line before another encoding",
    `POST /c HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\nTransfer-Encoding: deflate\r\n\r\nWorld`,
    501,
  ),
  // Legal, but nothing here inflates a body: better refused than taken for what it is not.
  bad(
    "chunked behind another encoding",
    `POST /c HTTP/1.1\r\n${HOST}Transfer-Encoding: deflate, chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n`,
    501,
  ),
  bad(
    "chunked in a line behind another encoding",
    `POST /c HTTP/1.1\r\n${HOST}Transfer-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n`,
    501,
  ),
  bad(
    "chunkedchunked",
    `POST /c HTTP/1.1\r\n${HOST}Transfer-Encoding: chunkedchunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n`,
    501,
  ),
  bad("no last chunk", chunkedPost("3\r\nbar\r\n\r\n")),
  bad("a line feed behind a size", chunkedPost("3 \n  \r\nbar\r\n\r\n")),
  bad(
    "a folded encoding",
    `PUT /c HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n  abc\r\n\r\n4\r\ngood\r\n0\r\n\r\n`,
  ),
  bad(
    "two carriage returns behind a size",
    chunkedPost(`5\r\r;ABCD\r\n34\r\nE\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n${HOST}\r\n`),
  ),
  bad("a chunk without its line end", chunkedPost("5\r\nABCDE0\r\n\r\n")),
  bad("a blank behind a size", chunkedPost("b \r\n0123456789a\r\n0\r\n\r\n")),
];

const targets: HttpCase[] = [
  good("quotes", `GET /with_"some"_quotes?a="b" HTTP/1.1\r\n${HOST}\r\n`, 'GET /with_"some"_quotes?a="b"\n'),
  good("two question marks", `GET /t.cgi?a=b?c HTTP/1.1\r\n${HOST}\r\n`, "GET /t.cgi?a=b?c\n"),
  good("a URL whose host ends in a query", `GET http://b.example?a=b HTTP/1.1\r\n${HOST}\r\n`, "GET /?a=b\n"),
  good(
    "a URL whose port ends in a query",
    `GET http://b.example:99?a=b HTTP/1.1\r\n${HOST}\r\n`,
    "GET /?a=b\n",
  ),
  good("a URL that ends in its port", `GET http://b.example:99 HTTP/1.1\r\n${HOST}\r\n`, "GET /?\n"),
  good("a bar", `GET /t.cgi?a=| HTTP/1.1\r\n${HOST}\r\n`, "GET /t.cgi?a=|\n"),
  bad("letters beyond ASCII", `GET /\xf8/x?q=1 HTTP/1.1\r\n${HOST}\r\n`),
  bad("a fragment", `GET /topics/7?page=2#post HTTP/1.1\r\n${HOST}\r\n`),
  bad("a user in a URL", `GET http://u%12:p!&*$@b.example:99/x HTTP/1.1\r\n${HOST}\r\n`),
  bad("a blank", `GET /a b/ HTTP/1.1\r\n${HOST}\r\n`),
];

const pipelines: HttpCase[] = [
  {
    what: "three requests in a row",
    request: `POST /a HTTP/1.1\r\n${HOST}Content-Length: 3\r\n\r\nAAAPUT /b HTTP/1.1\r\n${HOST}Content-Length: 4\r\n\r\nBBBBPATCH /c HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nCCCCC`,
    answers: ["POST /a?\nAAA", "PUT /b?\nBBBB", "PATCH /c?\nCCCCC"],
    stays: true,
  },
  {
    what: "chunks, a length and nothing in a row",
    request: `${chunkedPost("2\r\nok\r\n0\r\n\r\n")}PUT /b HTTP/1.1\r\n${HOST}Content-Length: 2\r\n\r\nokGET /c HTTP/1.1\r\n${HOST}\r\n`,
    answers: ["POST /c?\nok", "PUT /b?\nok", "GET /c?\n"],
    stays: true,
  },
];

export const HTTP_CASES: Readonly<Record<string, readonly HttpCase[]>> = {
  methods,
  protocols,
  connections,
  lengths,
  headers,
  encodings,
  targets,
  pipelines,
};

/** What a client leaves unfinished: nothing is handed on, and nothing but perhaps a refusal is answered. */
export const UNFINISHED: readonly (readonly [what: string, request: string])[] = [
  ["nothing", ""],
  ["half of a request line", "PUT /u HT"],
  ["half of a header", `PUT /u HTTP/1.1\r\n${HOST}Content-Leng`],
  ["a head without its empty line", `PUT /u HTTP/1.1\r\n${HOST}Content-Length: 10\r\n`],
];
