"""A prompt with a secret in each of its places, and the values of these secrets."""

KEY, BOUND, TENANT, INPUT = "sk-key-4f1c9e", "bound-8a20c7", "tenant-51bd02", "input-93ea6f"
USER, LITERAL = "user-3b9f41", "literal-77d0a2"

FILE = """\
---
model:
  id: m
  provider: scripted
  connection:
    kind: key
    endpoint: https://models.invalid
    apiKey: ${env:DURABLE_TEST_KEY}
  options:
    additionalProperties:
      client_secret: ${env:DURABLE_TEST_KEY}
      user: ${env:DURABLE_TEST_USER}
      signing_key: literal-77d0a2
  script:
    - [{call: look, arguments: {at: here}}]
    - [{call: look, arguments: {at: there}}]
    - Done.
inputs:
  password:
    kind: string
    sensitive: true
tools:
  - name: look
    kind: function
    parameters:
      at: string
      token: string
      tenant: string
      password: string
    bindings:
      token: ${env:DURABLE_TEST_TOKEN}
      tenant: tenant-51bd02
      password: {input: password}
---
user:
Look.
"""
