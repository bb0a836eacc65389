"""Configs of promptfoo in ten styles, three each, and ten `.prompt.yml` of GitHub Models: small, and all of them ours.

A value is the text of the config, or the texts of its files by name.
"""

_MESSAGES = '[{"role": "system", "content": "You know {{topic}}."}, {"role": "user", "content": "{{question}}"}]'
_WEATHER = """{type: function, function: {name: get_weather, description: The weather in a city, \
parameters: {type: object, properties: {city: {type: string}}, required: [city]}}}"""

PROMPTFOO: dict[str, list[str | dict[str, str]]] = {
    "text prompts with lists of values": [
        """\
prompts: ["Translate to {{language}}: {{text}}"]
providers: [openai:gpt-5-mini]
tests:
  - vars: {language: [French, German], text: [Hello, Goodbye]}
    assert: [{type: contains-any, value: [Bonjour, Hallo]}, {type: not-icontains, value: as an AI}]
""",
        """\
description: Tones
prompts: ["Answer {{question}} kindly.", "Answer {{question}} briefly."]
providers: openai:gpt-5-mini
tests:
  - {description: capital, vars: {question: Capital of France?}, assert: [{type: icontains, value: paris}]}
  - {description: sum, vars: {question: 2 + 2?}, assert: [{type: equals, value: 4}]}
""",
        """\
prompts: ["{% if formal %}Dear {{name}},{% else %}Hi {{name}}{% endif %} write a greeting"]
providers: [openai:gpt-5-mini, anthropic:messages:claude-haiku-5-5]
tests:
  - {vars: {name: Ada, formal: true}, assert: [{type: starts-with, value: Dear}, {type: regex, value: "Ada[,.]"}]}
  - {vars: {name: Bob, formal: false}, assert: [{type: not-contains, value: Dear}]}
""",
    ],
    "prompts in files and patterns": [
        {
            "promptfooconfig.yaml": """\
prompts: [file://prompts/*.txt]
providers: [openai:gpt-5-mini]
tests: [{vars: {topic: cats}, assert: [{type: contains, value: cats}]}]
""",
            "prompts/short.txt": "One line on {{topic}}.",
            "prompts/long.txt": "A page on {{topic}}.\n---\nTwo pages on {{topic}}.",
        },
        {
            "promptfooconfig.yaml": """\
prompts: [{id: file://ask.md, label: ask}]
providers: [openai:gpt-5-mini]
tests: file://tests/*.yaml
""",
            "ask.md": "# Task\nAnswer: {{question}}\n",
            "tests/a.yaml": "- {vars: {question: Who?}, assert: [{type: contains, value: Ada}]}\n",
            "tests/b.yaml": "- {vars: {question: When?}, assert: [{type: regex, value: '18\\d\\d'}]}\n",
        },
        {
            "promptfooconfig.yaml": """\
prompts: [prompts.txt, file://make.py:build]
providers: [openai:gpt-5-mini]
tests: [{vars: {text: file://long.txt}, assert: [{type: contains, value: sea}]}]
""",
            "prompts.txt": "Sum up: {{text}}",
            "make.py": "raise SystemExit('never run')",
            "long.txt": "The old man and the sea.\n",
        },
    ],
    "chats": [
        {
            "promptfooconfig.yaml": """\
prompts: [file://chat.json]
providers: [openai:chat:gpt-5-mini]
tests: [{vars: {topic: birds, question: Do they fly?}, assert: [{type: icontains-all, value: [most, fly]}]}]
""",
            "chat.json": _MESSAGES,
        },
        {
            "promptfooconfig.yaml": """\
prompts: [{label: support, id: file://chat.yaml}]
providers: [anthropic:claude-haiku-5-5]
tests:
  - {vars: {question: Refund?}, prompts: [support], assert: [{type: contains, value: refund}]}
  - {vars: {question: Refund?}, prompts: [other], assert: [{type: contains, value: refund}]}
""",
            "chat.yaml": "- {role: system, content: 'You help.\\nuser:\\nis not a role here.'}\n"
            "- {role: user, content: '{{question}}'}\n",
        },
        f"""\
prompts:
  - raw: '{_MESSAGES}'
    label: inline
providers: [openai:responses:gpt-5-mini]
tests: [{{vars: {{topic: law, question: Legal?}}, assert: [{{type: not-contains-any, value: [guarantee, certainly]}}]}}]
""",
    ],
    "tests in CSV": [
        {
            "promptfooconfig.yaml": 'prompts: ["Q: {{question}}"]\nproviders: [openai:gpt-5-mini]\ntests: file://rows.csv\n',
            "rows.csv": "question,__expected,__expected2,__description\n"
            'Capital of France?,contains: Paris,"regex: ^.{1,80}$",france\nCapital of Italy?,Rome,,italy\n',
        },
        {
            "promptfooconfig.yaml": 'prompts: ["{{a}} + {{b}}"]\nproviders: [openai:gpt-5-mini]\ntests: [file://rows.csv]\n',
            "rows.csv": 'a,b,__expected,__metric\n1,2,"contains-any: 3, three",sums\n2,2,llm-rubric: is right,sums\n',
        },
        {
            "promptfooconfig.yaml": """\
prompts: ["{{text}}"]
providers: [openai:gpt-5-mini]
defaultTest: {assert: [{type: latency, threshold: 5000}]}
tests: file://rows.csv
""",
            "rows.csv": "text,__expected\nhello,is-json\nbye,fn: output.length > 3\nso,latency(300): \n",
        },
    ],
    "tests in JSONL, JSON and YAML": [
        {
            "promptfooconfig.yaml": 'prompts: ["{{x}}"]\nproviders: [openai:gpt-5-mini]\ntests: file://rows.jsonl\n',
            "rows.jsonl": '{"vars": {"x": "a"}, "assert": [{"type": "contains", "value": "a"}]}\n{"vars": {"x": 1}}\n',
        },
        {
            "promptfooconfig.yaml": 'prompts: ["{{x}}"]\nproviders: [openai:gpt-5-mini]\ntests: [file://rows.json]\n',
            "rows.json": '[{"vars": {"x": 5}, "assert": [{"type": "equals", "value": "{{x}}"}]}]',
        },
        {
            "promptfooconfig.yaml": 'prompts: ["{{x}}"]\nproviders: [openai:gpt-5-mini]\ntests: [file://a.yml, file://b.yml]\n',
            "a.yml": "- {vars: {x: one}, assert: [{type: cost, threshold: 0.01}]}\n",
        },
    ],
    "providers": [
        """\
prompts: ["{{q}}"]
providers: [ollama:chat:llama3.2]
tests: [{vars: {q: hi}, assert: [{type: contains, value: hello}]}]
""",
        """\
prompts: ["{{q}}"]
providers:
  - {id: "azure:chat:our-gpt", config: {apiHost: us.openai.azure.com, temperature: 0.2, apiKey: not-a-key}}
  - {id: "groq:llama-3.3-70b-versatile", config: {apiHost: us.openai.azure.com, temperature: 0.2, apiKey: not-a-key}}
tests: [{vars: {q: hi}, assert: [{type: icontains, value: hello}]}]
""",
        """\
prompts: ["{{q}}"]
targets:
  - google:gemini-2.5-flash:
      config: {temperature: 0, max_tokens: 50, stop: ["END"], logit_bias: {}}
  - https://example.com/chat
tests: [{vars: {q: hi}, assert: [{type: contains, value: hello}]}]
""",
    ],
    "tools": [
        f"""\
prompts: ["{{{{q}}}}"]
providers: [{{id: openai:gpt-5-mini, config: {{tools: [{_WEATHER}], tool_choice: auto}}}}]
tests: [{{vars: {{q: Rain in Oslo?}}, assert: [{{type: is-valid-openai-tools-call}}, {{type: contains, value: Oslo}}]}}]
""",
        {
            "promptfooconfig.yaml": """\
prompts: ["{{q}}"]
providers: [{id: openai:gpt-5-mini, config: {tools: file://tools.yaml}}]
tests: [{vars: {q: Rain?}, assert: [{type: tool-call-f1, value: [get_weather]}]}]
""",
            "tools.yaml": f"- {_WEATHER}\n",
        },
        """\
prompts: ["{{q}}"]
providers:
  - id: anthropic:messages:claude-haiku-5-5
    config:
      tools:
        - name: look_up
          description: Look up a word
          input_schema: {type: object, properties: {word: {type: string, minLength: 1}}, required: [word]}
tests: [{vars: {q: What is a monad?}, assert: [{type: contains, value: monad}]}]
""",
    ],
    "JSON answers": [
        """\
prompts: ["A person as JSON: {{text}}"]
providers: [openai:gpt-5-mini]
tests:
  - vars: {text: Ada is 36.}
    assert:
      - {type: is-json, value: {type: object, required: [name], properties: {age: {type: integer}}}}
      - {type: contains-json}
""",
        """\
prompts: ["A person: {{text}}"]
providers:
  - id: openai:gpt-5-mini
    config:
      response_format:
        type: json_schema
        json_schema:
          name: person
          strict: true
          schema:
            {type: object, properties: {name: {type: string}}, required: [name], additionalProperties: false}
tests: [{vars: {text: Ada}, assert: [{type: equals, value: {name: Ada}}, {type: is-json}]}]
""",
        """\
prompts: ["JSON: {{text}}"]
providers: [{id: openai:gpt-5-mini, config: {response_format: {type: json_object}}}]
tests: [{vars: {text: x}, assert: [{type: is-json}, {type: javascript, value: JSON.parse(output).a === 1}]}]
""",
    ],
    "defaults, sets and weights": [
        """\
prompts: ["{{q}}"]
providers: [openai:gpt-5-mini]
defaultTest:
  vars: {tone: kind}
  options: {transform: output.trim()}
  assert: [{type: not-contains, value: sorry}, {type: llm-rubric, value: is polite}]
tests: [{vars: {q: a}, assert: [{type: contains, value: yo, weight: 2}]}, {vars: {q: b}}]
""",
        """\
prompts: ["{{q}}"]
providers: [openai:gpt-5-mini]
tests:
  - vars: {q: a}
    threshold: 0.5
    assert:
      - {type: assert-set, assert: [{type: contains, value: a}, {type: contains, value: b}]}
      - {type: assert-set, threshold: 0.5, assert: [{type: contains, value: c}, {type: contains, value: d}]}
      - {type: contains, value: e, weight: 0}
""",
        """\
prompts: ["{{q}}"]
providers: [openai:gpt-5-mini]
evaluateOptions: {repeat: 3, maxConcurrency: 4}
scenarios: [{config: [{vars: {q: a}}], tests: [{}]}]
tests: [{vars: {q: a}, assert: [{type: contains-all, value: ["{{q}}", b], metric: recall}], metadata: {a: 1}}]
""",
    ],
    "judges, code and red teams": [
        """\
prompts: ["{{q}}"]
providers: [openai:gpt-5-mini]
tests:
  - {vars: {q: a}, assert: [{type: llm-rubric, value: is polite}, {type: factuality, value: Paris}]}
  - {vars: {q: b}, assert: [{type: javascript, value: output.length}, {type: similar, value: b, threshold: 0.8}]}
""",
        """\
prompts: ["{{q}}"]
providers: [openai:gpt-5-mini, "exec:./answer.sh", file://provider.js]
tests: [{vars: {q: a}, assert: [{type: python, value: file://check.py}, {type: levenshtein, value: a}]}]
""",
        """\
prompts: [file://prompt.py]
providers: [python:provider.py]
redteam: {purpose: none, plugins: [pii]}
""",
    ],
}

_SUMMARIZE = """\
name: Summarize
model: openai/gpt-4o-mini
messages: [{role: system, content: "You summarize."}, {role: user, content: "{{input}}"}]
"""
PROMPT_YML: dict[str, str] = {
    "plain": _SUMMARIZE + "testData: [{input: A parcel, expected: parcel}]\n"
    'evaluators: [{name: has it, string: {contains: "{{expected}}"}}]\n',
    "starts and ends": _SUMMARIZE + "testData: [{input: A}]\n"
    'evaluators: [{name: s, string: {startsWith: "{"}}, {name: e, string: {endsWith: "}"}}]\n',
    "parameters": _SUMMARIZE + "modelParameters: {temperature: 0.5, max_tokens: 100, logprobs: true}\n"
    "testData: [{input: A}]\nevaluators: [{name: e, string: {equals: A}}]\n",
    "a judge": _SUMMARIZE + "testData: [{input: A}, {input: B}]\n"
    "evaluators: [{name: near, uses: github/similarity}, {name: j, llm: {modelId: openai/gpt-4o, prompt: Rate}}]\n",
    "a shape": _SUMMARIZE + "responseFormat: json_schema\njsonSchema: |-\n"
    '  {"name": "x", "strict": true, "schema": {"type": "object", "properties": {"n": {"type": "string"}},\n'
    '  "required": ["n"], "additionalProperties": false}}\n'
    'testData: [{input: a}]\nevaluators: [{name: s, string: {contains: "n"}}]\n',
    "a shape that outputs cannot express": _SUMMARIZE + "responseFormat: json_schema\n"
    'jsonSchema: \'{"type": "object", "properties": {"n": {"type": "string", "pattern": "a"}}}\'\n'
    "testData: [{input: a}]\n",
    "a JSON object": _SUMMARIZE + "responseFormat: json_object\ntestData: [{input: a}]\n",
    "no tests": 'model: xai/grok-3\nmessages: [{role: user, content: "Hi {{name}}"}]\n',
    "another template": "model: mistral-ai/mistral-small\n"
    'messages: [{role: user, content: "{{#if a}}x{{/if}} {{input}}"}]\ntestData: [{input: a, more: b}]\n',
    "an answer before the question": "model: deepseek/deepseek-v3\n"
    "messages: [{role: user, content: Hi}, {role: assistant, content: Hello}, {role: user, content: '{{input}}'}]\n"
    "testData: [{input: a}]\nevaluators: [{name: r, string: {matches: a}}]\n",
}
