package probe

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// An api is one way to request a stream.
type api struct {
	path  func(model string) string
	body  func(model, prompt string, maxTokens int) map[string]any
	parse func(message []byte) (piece, error)
	lines bool // messages are lines of JSON instead of server-sent events
	ends  bool // only the end of the stream shows that the answer is complete
}

// piece holds the part of an answer that one message adds.
type piece struct {
	visible, reasoning string
	tool               bool // part of a tool call
	finished           bool // the model has ended its answer
	prompt, completion int  // tokens so far, or 0 if the message does not report tokens
	failed             bool // the message is an error
}

// token reports whether the message contains a token.
func (p piece) token() bool { return p.visible != "" || p.reasoning != "" || p.tool }

// marked is the user of synthetic requests, so that people recognise these requests in an engine's log.
const marked = "llm-node-exporter-probe"

// apis lists the APIs, by their names in the configuration.
var apis = map[string]*api{
	"chat": {path: at("/v1/chat/completions"), parse: parseOpenAI, body: func(model, prompt string, maxTokens int) map[string]any {
		return openAI(model, maxTokens, "messages", userSays(prompt))
	}},
	"completions": {path: at("/v1/completions"), parse: parseOpenAI, body: func(model, prompt string, maxTokens int) map[string]any {
		return openAI(model, maxTokens, "prompt", prompt)
	}},
	"ollama": {path: at("/api/chat"), parse: parseOllama, lines: true, body: func(model, prompt string, maxTokens int) map[string]any {
		return map[string]any{"model": model, "stream": true, "messages": userSays(prompt), "options": map[string]any{
			"temperature": 0,
			"num_predict": maxTokens,
		}}
	}},
	"tgi": {path: at("/generate_stream"), parse: parseTGI, body: func(_, prompt string, maxTokens int) map[string]any {
		return map[string]any{"inputs": prompt, "parameters": map[string]any{"do_sample": false, "max_new_tokens": maxTokens, "details": true}}
	}},
	"triton": {
		path: func(model string) string { return "/v2/models/" + url.PathEscape(model) + "/generate_stream" }, parse: parseTriton,
		ends: true,
		body: func(_, prompt string, maxTokens int) map[string]any {
			return map[string]any{"text_input": prompt, "max_tokens": maxTokens, "temperature": 0, "stream": true}
		},
	},
}

func at(path string) func(string) string { return func(string) string { return path } }

func userSays(prompt string) any {
	return []map[string]string{{"role": "user", "content": prompt}}
}

func openAI(model string, maxTokens int, key string, prompt any) map[string]any {
	return map[string]any{
		"model": model, key: prompt, "max_tokens": maxTokens, "temperature": 0, "stream": true,
		"stream_options": map[string]any{"include_usage": true}, "user": marked,
	}
}

// own lists fields of a body that limit its cost or make requests comparable. The configuration cannot set these fields.
var own = []string{
	"model", "messages", "prompt", "inputs", "text_input", "stream", "max_tokens", "max_completion_tokens",
	"min_tokens", "n", "best_of",
	"num_predict", "options", "parameters", "temperature", "user", "keep_alive", "tools",
}

// text is a string of an answer. It also accepts other JSON values.
type text string

// UnmarshalJSON turns null into an empty text, and leaves lists of parts unchanged.
func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	switch {
	case json.Unmarshal(b, &s) == nil:
		*t = text(s)
	default:
		*t = text(b)
	}
	return nil
}

// given reports whether a JSON field is present and not empty.
func given(raw json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", "[]", "{}", `""`}, string(raw))
}

// said holds one choice of an OpenAI-compatible message, or of a whole answer.
type said struct {
	Content          text            `json:"content"`
	Refusal          text            `json:"refusal"`
	Reasoning        text            `json:"reasoning"`
	ReasoningContent text            `json:"reasoning_content"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
}

// parseOpenAI reads a chunk of a stream of chat or completions. It also accepts a whole answer.
func parseOpenAI(message []byte) (p piece, err error) {
	var chunk struct {
		Object  string          `json:"object"`
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Delta, Message said
			Text           text   `json:"text"`
			FinishReason   string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(message, &chunk); err != nil {
		return p, err
	}
	p.failed = given(chunk.Error) || chunk.Object == "error"
	p.prompt, p.completion = chunk.Usage.Prompt, chunk.Usage.Completion
	for _, c := range chunk.Choices {
		for _, s := range []said{c.Delta, c.Message} {
			p.visible += string(s.Content + s.Refusal)
			p.reasoning += string(s.Reasoning + s.ReasoningContent)
			p.tool = p.tool || given(s.ToolCalls)
		}
		p.visible += string(c.Text)
		p.finished = p.finished || c.FinishReason != ""
		p.failed = p.failed || c.FinishReason == "error" || c.FinishReason == "abort"
	}
	return p, nil
}

func parseOllama(message []byte) (p piece, err error) {
	var line struct {
		Error   json.RawMessage `json:"error"`
		Message struct {
			Content   text            `json:"content"`
			Thinking  text            `json:"thinking"`
			ToolCalls json.RawMessage `json:"tool_calls"`
		} `json:"message"`
		Done       bool `json:"done"`
		Prompt     int  `json:"prompt_eval_count"`
		Completion int  `json:"eval_count"`
	}
	if err := json.Unmarshal(message, &line); err != nil {
		return p, err
	}
	return piece{
		visible: string(line.Message.Content), reasoning: string(line.Message.Thinking), tool: given(line.Message.ToolCalls),
		finished: line.Done,
		prompt:   line.Prompt, completion: line.Completion, failed: given(line.Error),
	}, nil
}

// parseTGI reads one token. The last message also has the whole text.
func parseTGI(message []byte) (p piece, err error) {
	var m struct {
		Error     json.RawMessage `json:"error"`
		Index     int             `json:"index"`
		Generated *string         `json:"generated_text"`
		Token     struct {
			Text    text `json:"text"`
			Special bool `json:"special"`
		} `json:"token"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return p, err
	}
	p = piece{finished: m.Generated != nil, completion: m.Index, failed: given(m.Error)}
	if !m.Token.Special {
		p.visible = string(m.Token.Text)
	}
	return p, nil
}

func parseTriton(message []byte) (p piece, err error) {
	var m struct {
		Error  json.RawMessage `json:"error"`
		Output text            `json:"text_output"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return p, err
	}
	return piece{visible: string(m.Output), failed: given(m.Error)}, nil
}

// sameModel reports whether two names mean the same model in Ollama. There, a name without a tag has the tag latest.
func sameModel(a, b string) bool {
	return strings.TrimSuffix(a, ":latest") == strings.TrimSuffix(b, ":latest")
}
