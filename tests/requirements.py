"""The requirements of the five documents in our own words, by section: the rows of `docs/reference/conformance.md`.

Edit this file by hand, then run `make docs`. Each requirement names the fingerprints of the statements that it comes
from. `python -m tests.spec_statements` prints every statement of the documents with its fingerprint.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    text: str
    strength: str  # MUST, SHOULD or MAY
    statements: tuple[str, ...]
    departs: str  # the row of docs/explanation/differences.md that says what happens instead, and why
    missing: str  # the gap, where no test proves the requirement


def must(text: str, statements: str, *, departs: str = "", missing: str = "") -> Requirement:
    """Return a requirement of a MUST, or of a statement that describes behavior without a keyword."""
    return Requirement(text, "MUST", tuple(statements.split()), departs, missing)


def should(text: str, statements: str, *, departs: str = "", missing: str = "") -> Requirement:
    return Requirement(text, "SHOULD", tuple(statements.split()), departs, missing)


def may(text: str, statements: str, *, departs: str = "", missing: str = "") -> Requirement:
    return Requirement(text, "MAY", tuple(statements.split()), departs, missing)


REQUIREMENTS: dict[str, tuple[Requirement, ...]] = {
    "000 §7": (must("at least one provider is supported", "9c8268c1"),),
    "000 §7.1.1": (
        must("every message is converted", "ab7e24cc abd186ed"),
        must("message_to_wire takes a message", "abd186ed"),
        must("all metadata of a message goes beside its content", "f2d75855", departs="W2"),
        must("a message with one text is a plain string", "d36c0fcd 35d46c2f"),
        must("a message with several parts is an array", "fc5a3cef 35d46c2f"),
    ),
    "000 §7.1.2": (
        must("each part becomes its content block", "c783ffab 4c55869f"),
        must("a file is sent as its URL", "4c55869f", departs="W3"),
        must("the data of images and audio is sent as it is", "4c55869f", departs="W3"),
        must("messages of every role may have images, files and audio", "c783ffab", departs="W15"),
        must("audio types become formats", "0f90f4da fa5ba9d8 b5b21939 48fc8288 3eaf6fd1 fe903a14"),
        must("no empty detail is sent", "1369da6f"),
        should("an image without a detail has no such key", "1369da6f"),
    ),
    "000 §7.1.3": (
        must("tools of every kind are sent as functions", "513fbbea 18324356"),
        must("a function tool is a function definition", "aad23d23 dc86f30b 18324356"),
        must("a prompty tool has the inputs of its child as parameters", "df66867c 2018afd2"),
        must("a prompty tool without a description has that of its child", "2018afd2"),
        must("the tools of an MCP server are functions", "539a3b78 6153f088"),
        must("only the allowed tools of an MCP server are sent", "6153f088"),
        must("an openapi tool is one function for each operation", "ad2a2d27 05d63ea9"),
        must("an openapi tool calls the servers of its document", "05d63ea9", departs="D2"),
        must("a custom tool is what its registered handler describes", "4f3b9cef 28ea1fae"),
        must("a custom tool is looked up by its name", "4f3b9cef 28ea1fae"),
        must("a call is run by the handler of its tool's kind", "9da67199"),
        must("bound parameters are stripped", "192c76e5"),
        must("strict stands on the function and closes the schema", "4937d0ce"),
        must("no tools means no key", "e39403a3 4ceac196"),
    ),
    "000 §7.1.4": (
        must("properties become a JSON Schema object", "7dd64ec3 a8a81d0f"),
        must("a schema has the descriptions and the allowed values of its properties", "41659d25"),
        must("a schema is one level deep", "41659d25", departs="W4"),
        must("required lists what is required and is left out where nothing is", "41659d25 06db0250"),
        must("kinds become JSON types", "0f6a68eb 1c14450b 79aa28cf a04f6bb3 b0f83494 890346c4 9013ac5d"),
    ),
    "000 §7.1.5": (
        must("options become request parameters", "f6f464eb f3f3c0cf 54fdd938"),
        must("without options nothing is sent", "640fa8a8"),
        must("additional properties pass through and override nothing", "9d97e4d8"),
        must("`stream` among the additional properties passes through", "9d97e4d8", departs="W7"),
    ),
    "000 §7.1.6": (
        must("outputs become a response format", "4237a991 ea72e0fa a300efc7"),
        must("only required outputs are required in the schema", "ea72e0fa", departs="W5"),
        must("an output that is only called an object may have any key", "ea72e0fa", departs="W4"),
        must("without outputs there is no response format", "d9c8ee9f"),
        must("the content is parsed as JSON where there are outputs", "12957c50"),
    ),
    "000 §7.1.7": (
        must(
            "a chat request has the model, messages, options, tools and response format", "31a1e852 fb52c08b a2cf7bd8"
        ),
    ),
    "000 §7.1.8": (
        must("the executor emits an execute span", "9c0ca4c8"),
        must(
            "a call is a span with the attributes of generative AI",
            "9c0ca4c8 40eb6fab 3e636a54 c42221d6 b997fd87 440e9a86 d896fcdb",
        ),
        must("the provider of a span is the file's key", "189196f3", departs="T1"),
        must("every option of the request is an attribute of its span", "f4c6900d"),
    ),
    "000 §7.2": (
        must("an embeddings request is built", "abd6f9a5 2d0b96c6 07bd4987"),
        must("one text is a string, several are an array", "e4f1502b 79f78af4"),
        must("messages without text are embedded as an empty list", "79f78af4", departs="W8"),
        must("the span of an embeddings call says so", "6dd0e254"),
    ),
    "000 §7.3": (
        must("an image request is built", "2971b614 bf985f04"),
        must("the last user message is the prompt", "1ba0bfec 0b7e459e"),
        must("only the first text of that message counts", "0b7e459e", departs="W8"),
        must("options of the model are sent for an image", "b9fa0c0a", departs="W8"),
        must("without a user message the prompt is empty", "c58eac7a"),
    ),
    "000 §7.4": (must("the type responses has its own format", "3d0876cf"),),
    "000 §7.4.1": (
        must("a message of one text is an item with a string", "be88cc9c 7eff964b"),
        must("system messages are items of the input", "ed0a824d a021ec33", departs="W9"),
        must("parts have the form of Chat Completions", "7eff964b", departs="W9"),
        must("a call goes back from the metadata of the message with its result", "27f71193"),
        must("tools have the form of Chat Completions", "4f81dd86", departs="W9"),
        must("outputs become a text format", "224482ab"),
    ),
    "000 §7.5": (
        may("Anthropic is supported", "2cc5e945"),
        must("the system message is a field of its own", "dcc96299 67170839"),
        must("the last system message wins", "723c6824", departs="W10"),
        must("each message is a turn of its own", "723c6824", departs="W10"),
        must("the most tokens are 4096 unless the file says otherwise", "570e3666"),
        must("sampling options and stop sequences are sent where the file has them", "15b69c8e"),
        must("only function tools are sent", "bda02087", departs="W6"),
        must("a tool has a name, a description and an input schema", "a78c7a9d"),
        must("messages are always blocks", "0ebfe223 424af5a1 5bb4d246"),
        must("an image is a block with a base64 source", "424af5a1"),
    ),
    "000 §7.6": (
        must(
            "options have their names for chat",
            "11637d3e e37b156b 7973d9fc 3d6001fc e6434ae5 c09cf4a4 b14bc6a7 45155536",
        ),
        must("options have their names for Anthropic", "11637d3e e37b156b 7973d9fc 3d6001fc eaf97c4d b14bc6a7"),
        must(
            "an option that a provider does not have is left out silently",
            "6979b83e eaf97c4d e6434ae5 c09cf4a4 45155536",
        ),
    ),
    "000 §7.7": (
        must("outputs become the provider's own mechanism", "ae2ad42b"),
        must("the parsed object is the result", "717886b0"),
        should("what is not JSON is returned as it is", "ef1e3aee"),
    ),
    "000 §7.8": (
        must("an executor has execute and execute_async", "1dade447 197d4e30"),
        must("a processor has process and process_async", "1dade447 49fc237b"),
        must("both are registered under the provider key", "1dade447 ea8bf851"),
        must("the wire mappings are documented", "1dade447 51109de9"),
        should("every request has the user agent prompty/<version>", "3b6016b6"),
    ),
    "001 The Four Roles": (
        must(
            "messages have four roles, under the names of the wire",
            "66e08194 48bda540 cbf92f2b a165196b 740739e4 a5b0058a fc60e9dd 2229eb92 1e350de8",
        ),
        must("the roles are an enumeration of strings", "31adff00"),
    ),
    "001 How a Turn Interleaves": (
        must(
            "each call is answered by one tool message before the model is asked",
            "e0d7c4bc 499bd0c5 ac7b492e 42f74905 fb8bb0c8",
        ),
        must("a conversation goes on from all that was said before", "31dda888"),
        must("a stored conversation is sent as it is", "31dda888", departs="L7"),
        must("memory stores every message of a conversation", "31dda888", departs="L10"),
        must("a session goes on with the same memory and session id", "b6d14c63"),
        must("tools run in the process of the caller", "e1ecff1c"),
    ),
    "001 The model only ever sees this array": (
        must("what was said and done is all in the messages", "5cd5fa69 5d624795 ac298ae3"),
    ),
    "001 Message Shapes": (
        must(
            "stored messages have reasoning, finishReason, toolName and isError beside what crosses the wire",
            "c6b1e023 e23191ef 417fae66 30119a88",
        ),
        must("what is ours alone never crosses the wire", "c4665f92 bb48e3b6 469281ca 417fae66 30119a88"),
    ),
    "001 user and system": (
        must("a system message is text, a user's is text or parts, which cross as they are", "dfd205a5 f30a9116"),
        must("keys of a part that prompty does not know cross too", "f30a9116"),
    ),
    "001 assistant — text and/or tool calls": (
        must("an answer has text, calls or both", "d8d2093c"),
        should("a turn of calls alone has empty content", "b81c7a28"),
        must("a call is an id, the type function, a name and its text", "1792df19"),
    ),
    "001 Arguments are a string until the moment of execution": (
        must("arguments stay text until a tool runs", "31184cab"),
        must("a tool gets values of its own types", "9b9f5be4"),
        must("malformed arguments become an error result", "9b9f5be4"),
        must("malformed arguments go back to the model as they are", "31184cab", departs="L4"),
        must("pieces of a stream are put together before a call runs", "04d1b7cb"),
        must("an answer keeps why it ended", "469281ca"),
        must("an answer whose stream failed is a message marked as an error", "469281ca", departs="D4"),
    ),
    "001 tool — one result per call": (
        must("a result is a role, the id of its call and its content", "741db1e8 3ad740da"),
        must("no error flag crosses the wire", "3ad740da", departs="L11"),
        must("the model reads a failure as text", "3ad740da"),
        must("stop conditions can match the name of a tool", "417fae66"),
    ),
    "001 Pairing: One Result per Call": (
        must("each call has one result, whatever its id", "31180030"),
        must("a result has the id of its call", "f95781c2"),
        must("ids cross the wire as the model wrote them", "f95781c2", departs="L1"),
        must("results are paired by order", "90129815 ac112ff2 47e80884 2459bdab be8d3ac2"),
        must("a denied call has its result in its own place", "47e80884"),
    ),
    "001 Why ordering, not just ids": (must("ids that a model repeats do no harm", "daf4b2e4 50c85c5f be8d3ac2"),),
    "001 Parallel Tool Calling": (
        must("the gate is asked once about the whole batch, before anything runs", "a8980bcc 49908f3b 0f7eaf45"),
        must("approved calls run in parallel by default", "a02f2aae d1616e58 0f7eaf45"),
        must("one failure does not break the batch", "f5da6d0f"),
        must("calls of a run, or of a tool, can be made one after the other", "6c841ef2"),
        must("the options for it are called executionMode and toolExecution", "6c841ef2", departs="D7"),
        must("results stand in request order, whatever finishes first", "24d425af d2cc22a0 0f7eaf45"),
        must("calls that run in parallel have no wire form of their own", "bc374f5f"),
    ),
    "001 Interleaved Thinking": (
        must("thoughts are read under either name", "76715a46 231ba942"),
        must(
            "thoughts go back with the calls they led to and are left out of answers",
            "e23191ef bb48e3b6 109a814f 7973b047 31b9f713 5f1ebb56 0f7eaf45",
        ),
        must(
            "thoughts go back to whatever server a request reaches, also one that the file does not name",
            "31b9f713",
        ),
        must("flat thoughts go back as reasoning_content", "affaad3e", departs="L6"),
        must("structured thoughts go back as they came, in their order", "affaad3e b1f149ba a2351eaf"),
    ),
    "001 Where the rule lives": (
        must("one function makes the messages of a request from stored ones and leaves these as they are", "21d90335"),
        must("what is stored keeps all thoughts", "e538ddd1 7581177b"),
    ),
    "002 §8": (
        must("whatever is executed is processed", "263236b3"),
        must("process and process_async take an agent and a raw reply", "7dd24ec6"),
        must("process and process_async are spans", "722efcc8"),
        must("processing that fails is a span, and so is that of each reply of a turn", "722efcc8"),
        must("a reply that cannot be read is a process span", "722efcc8", departs="D6"),
    ),
    "002 §8.1": (
        must("the first choice counts", "1f6b5797"),
        must("a raw reply may be an object of a provider's SDK", "1f6b5797"),
        must("calls come before content", "39d97110 ea5a5876"),
        must("the full list of calls is the result", "41794dc5 ea5a5876"),
        must("a call that the token limit cut counts too", "ea5a5876", departs="P3"),
        must("no content is an empty text", "f1e13995"),
        must("a refusal without content is an empty text", "f1e13995", departs="P2"),
        must("with outputs the content is parsed, and is the result where it is not JSON", "82a6bc5d"),
    ),
    "002 §8.2": (
        must("no vector is a ValueError", "9cff9137"),
        must("one vector is not a list of one", "811358bb 5fbf3c5c"),
        must("several vectors are a list", "09bd09f0"),
    ),
    "002 §8.3": (
        must("no image is a ValueError", "7eae23d5"),
        must("a URL is preferred over base64", "fafb15b6 a7ba5c9d"),
        must("one image is a text, several are a list", "99c27c2d 6c92e143"),
    ),
    "002 §8.4": (
        must("an error is a ValueError with its message", "a37d566a"),
        must("calls come before text", "9afb18ce d4216cc9"),
        must("the text of the output is the result", "16eb3c4c"),
        must("with outputs the text is parsed, and is the result where it is not JSON", "c520e7ea"),
    ),
    "002 §8.5": (
        must("calls come before text", "5e4f2ba9 2cfbdcb8"),
        must("the first text block is the result", "aad263bd", departs="W10"),
        must("without a text block the result is empty", "aad263bd"),
        must("with outputs the text is parsed, and is the result where it is not JSON", "e3b648ea"),
    ),
    "002 §8.6": (
        must("a stream is processed piece by piece", "7cfec365 b8a7c66c"),
        must("process_stream takes the raw chunks of a stream", "a716a346"),
        must("process_stream takes a stream alone", "a716a346", departs="D5"),
        must("a chunk without a choice is passed over", "98d790a9"),
        must("deltas are given out as they come", "25f6bcc0"),
        must("calls are put together by index", "9e6b9132"),
        must("only the index tells calls apart", "9e6b9132", departs="P4"),
        must("a refusal in a stream is a ValueError", "e8f0034b"),
        must("a refusal ends a stream at its first piece", "e8f0034b", departs="P2"),
        must("calls come after the text, in the order of their index", "12479c37"),
        must("calls are given out when a stream ends, however it ended", "12479c37", departs="P3"),
    ),
    "002 §8.7": (
        must("a call has an id, a name and arguments", "c0d4379e 53171409"),
        must("arguments are always JSON text", "608fd816 53171409"),
        must("the caller parses the arguments of a call", "89dc42c0"),
    ),
    "003 §2.1": (
        must("frontmatter stands between two lines of --- or +++ and may be left out", "b8ecc9c5 b57de849"),
        must("frontmatter is any YAML", "b8ecc9c5", departs="F9"),
        must("the body is the instructions of the agent", "941b2f8b"),
        must("without delimiters all is body", "bf308260"),
        must("frontmatter that is not YAML is a ValueError", "e68c8e18"),
    ),
    "003 §2.2": (
        must("the four vectors", "4404c29c 5d623cfa a52e3293 f43d49fe 2f61c0ce a8c6df3c"),
        must("frontmatter ends at the next delimiter, wherever it stands", "fea5cfc7 b65cdc6b", departs="F1"),
        must("frontmatter is the text between the delimiters, the body all after them", "2fa3d412 795c5614"),
        must("text that begins with no delimiter is all instructions", "e965f0b4"),
        must("no closing delimiter is a ValueError", "bbdfbdbb"),
        may("whitespace may precede the opening delimiter", "fbca522e"),
        must("delimiters may differ", "23708e0b"),
        should("both delimiters are the same", "23708e0b"),
    ),
    "003 §2.3": (
        must(
            "every property of the frontmatter is read",
            "58aab5d0 2550c8c9 38e4bd65 5f3af41f 7b0e51c0 8d420da4 8bebefd8 e9a2a8b8 075ffc7c 66c5a296",
        ),
        must("inputs and outputs are a list or a map", "8bebefd8 e9a2a8b8"),
        should("unknown keys are kept in metadata", "e7daac69"),
        must("unknown keys raise nothing", "63bb0bc1"),
    ),
    "003 §2.4": (
        must("a string is the model's id", "621c0579"),
        must(
            "a model has an id, a provider, an API type, a connection and options",
            "315bbb60 e39c4172 b155bb5a 512a9624 0271951f 591a95a9",
        ),
        must("the API type is chat unless the file says otherwise", "512a9624"),
        must("a model without a provider has none", "b155bb5a", departs="F11"),
    ),
    "003 §2.5": (
        must("six kinds of connection", "4cfb3960 67954289 acf75918 d78fd779 88d8ee3a ab461f61 c4c5792f ba8e2f73"),
        must(
            "a connection without its required fields does not load",
            "acf75918 d78fd779 88d8ee3a ab461f61 c4c5792f ba8e2f73",
            departs="F11",
        ),
        must("a connection with a key sends it to its endpoint", "acf75918"),
        must("a credential goes to whatever endpoint the file names", "4cfb3960 acf75918", departs="F14"),
        must("a reference is what the host registered under that name", "d78fd779"),
        must("a remote connection can be used", "88d8ee3a", departs="D3"),
        must("an anonymous connection sends no credential", "ab461f61"),
        must("every provider takes an anonymous connection", "ab461f61", departs="D3"),
        must("a foundry connection reaches Microsoft Foundry with a token", "c4c5792f"),
        must("an OAuth connection can be used", "ba8e2f73", departs="D3"),
    ),
    "003 §2.6": (
        must(
            "all options", "9a4cbb57 fae5a90a 119ae93c fffff5e6 e0b8969c e71f4c3a 3964ca2a 882a9c44 aefef3c8 d417b03e"
        ),
        must("several calls at once can be allowed or forbidden", "aefef3c8"),
        must("provider-specific options pass through", "d417b03e"),
    ),
    "003 §2.7": (
        must("inputs follow the schema of the file", "c1dccf35 2a971b96 93a280f8"),
        must("a property has a description, an example and allowed values", "4f438657 d1d22a34 4b6ece63"),
        must("a required input that is not given is an error, others may be left out", "78aceb62"),
        must("an input that is not given has its default", "e25d6801"),
        must("the default of a parameter is passed where the model leaves it out", "e25d6801"),
        must("an example is never a value", "d1d22a34"),
        must("a value outside of the allowed ones is an error", "4b6ece63"),
        must("all kinds", "96bfb265 a74fd019 6e70dd97 8576c211 4e32dd8f 992cae5c e44eca7b a527f5b0 a80315f0 a213bfcb"),
        must("a thread is the messages of a conversation", "e44eca7b 4a4aa920"),
        must(
            "images, files and audio are URLs or base64 and become parts where they are written",
            "a527f5b0 a80315f0 a213bfcb 4a4aa920",
        ),
        must("base64 alone is an image, a file or audio", "a527f5b0 a80315f0 a213bfcb", departs="R7"),
        must("a scalar is a default", "5eed7d4c"),
        must("the kind is inferred", "5eed7d4c 40929f1e"),
        must("a map in place of a property is a default", "40929f1e", departs="F4"),
    ),
    "003 §2.8": (
        must("a template chooses the engine and the parser", "95f67b1e 4dccd9af 9d3915aa"),
        must("a string is the format kind", "a3c9b18a"),
        must("no template means jinja2 and prompty", "56d25eba 4dccd9af 9d3915aa"),
    ),
    "003 §2.9": (
        must("tools are a list, and their kind says what they are", "70070f1d 3859918a ae0ce5cd"),
        must("every tool has a name, a description and bindings", "545017df 6036d8ff 839d25f7"),
        must("two tools of one name are an error", "545017df"),
        must("four known kinds", "6110347e f4a3fdca 5580b94d b48115ed"),
        must("the document of an openapi tool is a path or a URL", "b48115ed"),
        must("a custom tool has options and a connection", "37b4340e"),
        must("an unknown kind is a custom tool", "24545374 37b4340e"),
    ),
    "003 §2.9.1": (
        must("bound parameters are stripped", "a31455e6 e48f5d99"),
        must("bound parameters are injected", "79cfd344 a31455e6"),
        must("a bound value is always static", "a31455e6 839d25f7", departs="F10"),
        must("a binding wins over the model", "37f5fd9b"),
    ),
    "003 §2.9.2": (
        must("a prompty tool has a path and a mode", "b80ec897 6935acc9 54ea5e6b"),
        must("the mode is single unless the file says otherwise", "54ea5e6b"),
        must("the path is relative to the file of the parent", "6935acc9 315b531b"),
        must("a path may lead out of the folder of the parent", "6935acc9", departs="D1"),
        must("a child of the mode single is one call", "e57ef3b7"),
        must("a child of the mode agentic has its own loop and tools", "3899ed74"),
        must("the result of the child is the result of the tool", "4991c552"),
    ),
    "003 §2.10": (
        must("each marker begins a message of its role", "060d5824 d2cddd74 850f899c"),
        must("every line of the rendered text that looks like a marker is one", "060d5824 d2cddd74", departs="R1"),
        must("the roles are system, user and assistant", "850f899c", departs="R3"),
        must("a marker has attributes in brackets", "850f899c"),
        must("a marker stands alone on its line", "9a8262de"),
        must("a marker may be indented or a heading", "9a8262de"),
        must("the case of a role does not matter", "e546e46e"),
        must("the text between two markers is the message", "b32e2a7b"),
        must("blank lines are trimmed", "a0715f3b"),
        must("lines of spaces at the edges are trimmed", "a0715f3b", departs="R4"),
        must("text before a marker is system", "33306973"),
    ),
    "003 §2.11": (
        may("values of the frontmatter hold references", "ae6cea49"),
        must("an env reference is the value of its variable", "ca15106d 9317d105"),
        must("an unset variable is a ValueError", "ef981ee7"),
        must("a variable that is not set has its default", "9317d105"),
        must("a default follows the second colon", "e2ac61a0"),
        must("a file reference is relative to the prompt", "e3c80c1b"),
        must("a file reference may lead out of the folder", "e3c80c1b", departs="F7"),
        must("json is parsed", "fe6837fd"),
        must("yaml is parsed", "3d81d96d"),
        must("other files are text", "a6b7c021"),
        must("a missing file is a FileNotFoundError", "d8d0196d"),
        must("the whole tree is walked", "550c2a75 1d06f178"),
    ),
    "004 Overview": (must("setting the API type is all it takes", "6ab9fa06 d8fa7f20 58e60c04"),),
    "004 Basic Configuration": (
        must("invoke and invoke_async work as they do for chat", "96b96b9a 03c1d441 db447e39"),
        must(
            "the printed file reaches the Responses API of Microsoft Foundry",
            "3dbe7eba",
        ),
    ),
    "004 Request Format": (
        must("requests go to the path of the Responses API", "7b72baff"),
        must("system messages become instructions", "4fc3ba8a 1c00a723"),
        must("user and assistant messages become input", "9694d036 1c00a723"),
        must("tools are flat", "b3b37cf3 1c00a723"),
        must("the most tokens are max_output_tokens", "9c9ab018"),
    ),
    "004 Response Format": (
        must("text is in the items of the output", "6fe30776 1deae00e"),
        must("calls are items of the output", "3f073815"),
        must("a reply without calls is the answer", "2d48bc35"),
    ),
    "004 Wire Format Example": (must("the printed requests are what is sent", "abe89a95 10428671"),),
    "004 Tool Calling": (must("a turn works as it does for chat", "d09527fa ee3f5162 35d4817f 7fe7f3c5"),),
    "004 How Tool Calls Work with the Responses API": (
        must("a call is read from an item of the output", "27e7a64d"),
        must("calls go back as they came, then their outputs", "249efe37 4ba667e9"),
    ),
    "004 Structured Output": (
        must("the schema has the name of the prompt", "95a635c1", departs="W5"),
        must("outputs become text.format", "1c00a723 993d4b89 f2fda3e1 95a635c1"),
        must("the answer is parsed as JSON", "30e76fca"),
        must("the parsed answer is a plain dict", "30e76fca", departs="P1"),
    ),
    "004 Provider Support": (
        must("each provider offers the APIs of the table", "76a1b3a2 06ff76e0 d09c1140 e0407707 60df3838 abcdd6fb"),
    ),
    "004 When to Use Responses API vs Chat Completions": (
        must("the API type is chat unless the file says otherwise", "21ce887d"),
    ),
}

# Statements that ask for nothing: introductions, reasons, advice to authors of prompts, headings of lists, and lines of
# pseudo-code that only name a function or return what the lines before them made.
INFORMATIVE: dict[str, str] = {
    "000 §7": "2275d61a",
    "000 §7.1.1": "3207d6ac 78548153",
    "000 §7.1.2": "7de48cf5",
    "000 §7.1.3": "46798e4c f3574688 9a270e4f",
    "000 §7.1.4": "af232c0f 9c99482c",
    "000 §7.1.5": "ed8d5f3b",
    "000 §7.1.7": "47424891",
    "000 §7.2": "cf748091",
    "000 §7.3": "05060e47",
    "000 §7.4": "0199119b",
    "000 §7.4.1": "48433391 57c26afe df22e0c5",
    "000 §7.5": "b3cbf368 97a4d16c 0898e8ba c2902854",
    "000 §7.6": "f234b8d8",
    "000 §7.7": "becb48ca c377e1a9 3fcb78d3 dc2d40f0",
    "000 §7.8": "6b6a5055",
    "001 Messages & the Wire Format": "71ba7ff5 5b298dba",
    "001 How a Turn Interleaves": "22935e82 34aa70cf",
    "001 The model only ever sees this array": "0a348a77",
    "001 user and system": "dd35de94",
    "001 assistant — text and/or tool calls": "b16b19fe",
    "001 Pairing: One Result per Call": "16fb74f2 25a9533e",
    "001 Why ordering, not just ids": "965ba5b5 1b566f9a",
    "001 Parallel Tool Calling": "d5fca9ec e4e54d66",
    "001 Interleaved Thinking": "c94356ca 4ebbd816 c62da5c4 0c1707db 941cb1cd",
    "001 Where the rule lives": "6f6cc906",
    "001 Recap": "f920a556",
    "002 §8": "57fd3b24 b6e825b6",
    "002 §8.1": "fcab7bdf",
    "002 §8.2": "d657d855",
    "002 §8.3": "5cb90a91",
    "002 §8.4": "5fa0514d",
    "002 §8.5": "4ecdd9bf",
    "003 §2.2": "7410138a b6cacec4 eedf7b0d ebf690f4",
    "003 §2.3": "9907d6b5",
    "003 §2.4": "6301574f",
    "003 §2.7": "09ed51c4 7190db36",
    "003 §2.8": "17fc3652",
    "003 §2.9": "4bfbbca6 e7974b82",
    "003 §2.9.1": "23b9b30f bcb795b4",
    "003 §2.9.2": "5e52e320",
    "003 §2.10": "89a6c8d6 cf6625d9",
    "003 §2.11": "2be36c2f",
    "004 Overview": "69613eda",
    "004 How It Differs from Chat Completions": "06c41138",
    "004 How Tool Calls Work with the Responses API": "7ab3ef88",
    "004 Provider Support": "24b46e8b",
    "004 When to Use Responses API vs Chat Completions": "d65a75d6 c59e5395",
}
