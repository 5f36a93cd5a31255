package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Browser is a web page in a headless Chromium, controlled over the pipe of its debugging protocol.
type Browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	calls   int
	// Complaints lists, as JSON, the entries of the web page's log, and what the browser blocked.
	Complaints []string
}

// NewBrowser starts a browser that ends with the test.
func NewBrowser(t *testing.T, args ...string) *Browser {
	t.Helper()
	notShort(t)
	chromium := Program(t, "chromium", "chromium")
	theirIn, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(chromium, append(args, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir())...)
	process.ExtraFiles = []*os.File{theirIn, theirOut}                     // descriptors 3 and 4, as the protocol requires
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // for a test that is killed
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &Browser{t: t, to: to, from: bufio.NewReader(from)}
	t.Cleanup(func() { // before the folder is removed
		b.session = ""
		b.call("Browser.close", nil, nil)
		_ = process.Wait()
		to.Close()
		from.Close()
	})
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Runtime", "Log", "Page"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call calls a method of the protocol, which must succeed.
func (b *Browser) call(method string, params, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// try calls a method of the protocol. If the browser refuses, try returns an error. Events that arrive in the meantime
// become complaints, or are ignored.
func (b *Browser) try(method string, params, result any) error {
	b.t.Helper()
	b.calls++
	request := map[string]any{"id": b.calls, "method": method}
	if params != nil {
		request["params"] = params
	}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	message, err := json.Marshal(request)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(message, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		message, err := b.from.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: the browser is gone: %v", method, err)
		}
		var answer struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(bytes.TrimSuffix(message, []byte{0}), &answer); err != nil {
			b.t.Fatal(err)
		}
		switch answer.Method {
		case "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled":
			b.Complaints = append(b.Complaints, string(answer.Params))
		}
		if answer.ID != b.calls {
			continue
		}
		if answer.Error != nil {
			return fmt.Errorf("%s: %s", method, answer.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				b.t.Fatal(err)
			}
		}
		return nil
	}
}

// Open opens a web page.
func (b *Browser) Open(url string) {
	b.t.Helper()
	var opened struct{ ErrorText string }
	b.call("Page.navigate", map[string]any{"url": url}, &opened)
	if opened.ErrorText != "" {
		b.t.Fatalf("%s: %s", url, opened.ErrorText)
	}
	b.Until("the page is there", `document.readyState === "complete" && location.href !== "about:blank"`)
}

// View sets the size of the window in pixels, and the medium and the features for CSS media queries. features
// alternates names and values, such as "prefers-color-scheme", "dark".
func (b *Browser) View(width, height int, media string, features ...string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": false,
	}, nil)
	set := []map[string]string{}
	for i := 0; i+1 < len(features); i += 2 {
		set = append(set, map[string]string{"name": features[i], "value": features[i+1]})
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"media": media, "features": set}, nil)
}

// Eval evaluates JavaScript in the web page, waits for a promise, and returns the value as text.
func (b *Browser) Eval(expression string) string {
	b.t.Helper()
	value, err := b.eval(expression)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// eval is like Eval, but returns an error if the browser could not evaluate the whole expression, for example because
// another web page replaced this one.
func (b *Browser) eval(expression string) (string, error) {
	b.t.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	params := map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}
	if err := b.try("Runtime.evaluate", params, &got); err != nil {
		return "", err
	}
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression[:min(len(expression), 200)], got.ExceptionDetails.Exception.Description)
	}
	return fmt.Sprint(got.Result.Value), nil
}

// Until waits until a condition is true in the web page. In the meantime, another web page may replace the current one.
// Only the test's deadline limits the time.
func (b *Browser) Until(what, condition string) {
	b.t.Helper()
	for late := TooLate(b.t); ; {
		holds, err := b.eval("Boolean(" + condition + ")")
		if holds == "true" {
			return
		}
		select {
		case <-late:
			b.t.Fatalf("not within the time of the test: %s (%v); the page shows:\n%s\n%s", what, err, b.Eval("document.body.innerText"), b.Complaints)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Press presses a key, Tab or Enter, like a person.
func (b *Browser) Press(key string) {
	b.t.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13}[key]
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if key == "Enter" && kind == "keyDown" {
			params["text"] = "\r"
		}
		b.call("Input.dispatchKeyEvent", params, nil)
	}
}

// Screenshot returns the window as PNG. With full, it returns the whole web page.
func (b *Browser) Screenshot(full bool) []byte {
	b.t.Helper()
	var shot struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": full}, &shot)
	return shot.Data
}
