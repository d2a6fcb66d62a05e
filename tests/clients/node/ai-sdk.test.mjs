// The AI SDK through each of its providers for this API.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = process.env.BASE_URL;
const openai = createOpenAI({ baseURL, apiKey: "none" });
const compatible = createOpenAICompatible({
  baseURL,
  name: "toolrail",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const models = {
  "openai, chat": openai.chat("demo"),
  "openai, responses": openai.responses("demo"),
  "openai-compatible": compatible("demo"),
};
const City = z.object({ city: z.string() });

function loop(model, prompt, asked) {
  const getWeather = tool({
    description: "The weather of a city.",
    inputSchema: City,
    execute: async ({ city }) => {
      asked.push(city);
      return "17 degrees";
    },
  });
  return { model, prompt, tools: { get_weather: getWeather }, stopWhen: isStepCount(5), maxRetries: 0 };
}

for (const [name, model] of Object.entries(models)) {
  test(`${name}: a loop of call and result`, async () => {
    const asked = [];
    const { text, steps, finishReason } = await generateText(loop(model, "How is the weather?", asked));
    assert.equal(text, "It is 17 degrees in Zürich.");
    assert.equal(finishReason, "stop");
    assert.deepEqual(
      steps.map((step) => step.finishReason),
      ["tool-calls", "stop"],
    );
    assert.deepEqual(asked, ["Zürich"]);
  });

  test(`${name}: a streamed loop of parallel calls, with what they use`, async () => {
    const asked = [];
    const errors = [];
    const result = streamText({
      ...loop(model, "Compare two cities", asked),
      onError: ({ error }) => errors.push(error),
    });
    const written = {};
    for await (const part of result.fullStream) {
      if (part.type === "tool-input-delta") written[part.id] = (written[part.id] ?? "") + part.delta;
    }
    assert.deepEqual(errors, []);
    assert.equal(await result.text, "It is 17 degrees in Zürich.");
    assert.deepEqual(asked.sort(), ["Bern", "Zürich"]);
    assert.deepEqual(Object.values(written).map(JSON.parse), [{ city: "Zürich" }, { city: "Bern" }]);
    assert.ok((await result.totalUsage).outputTokens > 0);
  });

  test(`${name}: an answer has the form of its schema`, async () => {
    const request = { model, prompt: "Say it as JSON", maxRetries: 0 };
    const { object } = await generateObject({ ...request, schema: City });
    assert.deepEqual(object, { city: "Bern" });
    const { output } = await generateText({ ...request, output: Output.object({ schema: City }) });
    assert.deepEqual(output, { city: "Bern" });
  });

  test(`${name}: what is refused is raised`, async () => {
    const bad = name.includes("responses")
      ? openai.responses("nope")
      : (name.includes("compatible") ? compatible : openai.chat)("nope");
    await assert.rejects(generateText({ model: bad, prompt: "x", maxRetries: 0 }), (error) => {
      assert.ok(APICallError.isInstance(error), error);
      assert.equal(error.statusCode, 404);
      assert.match(error.message, /nope/);
      return true;
    });
  });

  test(`${name}: who aborts is told so`, async () => {
    const controller = new AbortController();
    const seen = [];
    const result = streamText({ model, prompt: "Count", abortSignal: controller.signal, maxRetries: 0 });
    for await (const part of result.fullStream) {
      seen.push(part.type);
      if (part.type === "text-delta") controller.abort();
    }
    assert.equal(seen.at(-1), "abort");
  });
}

test("openai-compatible: reasoning, streamed and not", async () => {
  const request = { model: compatible("demo"), prompt: "Ponder it", maxRetries: 0 };
  const whole = await generateText(request);
  const streamed = streamText(request);
  for (const told of [whole, { text: await streamed.text, reasoningText: await streamed.reasoningText }]) {
    assert.equal(told.reasoningText, "Bern is higher.");
    assert.equal(told.text, "Bern is colder.");
  }
});
