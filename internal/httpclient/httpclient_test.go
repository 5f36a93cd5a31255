package httpclient

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/internal/configfile"
)

// notSecret lists the fields of Prometheus' configuration that may contain any value, because their values are public.
var notSecret = strings.Fields(`
	basic_auth.username basic_auth.username_file basic_auth.password_file authorization.type authorization.credentials_file bearer_token_file
	follow_redirects enable_http2 no_proxy proxy_from_environment http_headers.X-Tenant.values http_headers.X-Tenant.files
	oauth2.client_id oauth2.client_secret_file oauth2.client_certificate_key_id oauth2.client_certificate_key_file oauth2.grant_type
	oauth2.signature_algorithm oauth2.iss oauth2.audience oauth2.claims oauth2.scopes oauth2.no_proxy oauth2.proxy_from_environment
	tls_config.ca tls_config.cert tls_config.ca_file tls_config.cert_file tls_config.key_file tls_config.server_name
	tls_config.insecure_skip_verify tls_config.min_version tls_config.max_version
	oauth2.tls_config.ca oauth2.tls_config.cert oauth2.tls_config.ca_file oauth2.tls_config.cert_file oauth2.tls_config.key_file
	oauth2.tls_config.server_name oauth2.tls_config.insecure_skip_verify oauth2.tls_config.min_version oauth2.tls_config.max_version`)

// places returns the places of all values of a configuration, as paths.
func places(path string, of reflect.Type) (all []string) {
	switch {
	case of.Kind() == reflect.Pointer:
		return places(path, of.Elem())
	case of == reflect.TypeFor[config.Headers]():
		return places(path+".X-Tenant", reflect.TypeFor[config.Header]())
	case of.Kind() != reflect.Struct || of == reflect.TypeFor[config.URL]():
		return []string{strings.TrimPrefix(path, ".")}
	}
	for f := range of.Fields() {
		switch name, inline := configfile.Name(f); {
		case inline:
			all = append(all, places(path, f.Type)...)
		case name != "":
			all = append(all, places(path+"."+name, f.Type)...)
		}
	}
	return all
}

// values lists values of all kinds for a field.
var values = []string{
	"null", `""`, "s3cret", "12", "true", "[]", "[s3cret]", "{}", "{a: s3cret}", "{a: [s3cret]}",
	"{a: {values: [s3cret]}}", "{client_secret: s3cret}", "TLS12",
	"'http://s3cret:s3cret@h/'", "'http://h/?token=s3cret'", "'http://u:s3cret@h:port'", "'http://u:s3cret'", "'://s3cret'", "&a [*a]",
	"[[[[s3cret]]]]", "!!binary c2VjcmV0", "!foo s3cret", "{<<: {a: s3cret}}", "{? [a] : s3cret}",
}

var placed = regexp.MustCompile(`^--flag: \S+/http.yml:\d+: `)

// TestEveryField gives each field of Prometheus' configuration values of all kinds. Errors have a line, nothing panics,
// no message shows a secret, and a field that would contain a secret is refused or listed above.
func TestEveryField(t *testing.T) {
	file := filepath.Join(t.TempDir(), "http.yml")
	all := places("", reflect.TypeFor[config.HTTPClientConfig]())
	if len(all) < 60 || !slices.Contains(all, "oauth2.tls_config.key") || !slices.Contains(all, "http_headers.X-Tenant.secrets") {
		t.Fatalf("these are not all fields: %q", all)
	}
	for _, place := range all {
		for _, value := range values {
			text := "#\n" + strings.ReplaceAll(place, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(place, ".")) + "\n"
			if strings.HasPrefix(place, "oauth2.") && place != "oauth2.client_id" && place != "oauth2.token_url" { // or the field lacks these
				text = strings.Replace(text, "{", "{client_id: c, token_url: 'http://h', ", 1)
			}
			if strings.HasPrefix(place, "proxy_connect_header") {
				text += "proxy_url: http://h\n"
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := Load("flag", file)
			switch {
			case err != nil && (!placed.MatchString(err.Error()) || strings.Contains(err.Error(), "s3cret") &&
				!strings.HasSuffix(place, "_version")): // which is not a secret
				t.Errorf("%s: %v", text, err)
			case err == nil && strings.Contains(value, "s3cret") && strings.Contains(dump(reflect.ValueOf(cfg)), "s3cret") &&
				!slices.Contains(notSecret, place):
				t.Errorf("%s is kept, and no file holds it", text)
			}
			if err == nil {
				_, _ = New("", cfg) // does not panic
			}
		}
	}
}

// dump writes the whole content of a configuration.
func dump(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return ""
		}
		return dump(v.Elem())
	case reflect.Struct:
		var b strings.Builder
		for _, field := range v.Fields() {
			b.WriteString(dump(field))
		}
		return b.String()
	}
	return fmt.Sprint(v)
}

func TestSecretsAreRefusedWithTheirRemedy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "http.yml")
	for text, want := range map[string]string{
		"proxy_url: http://u:s3cret@proxy:1":                                                         "http.yml:1: proxy_url",
		"proxy_url: http://proxy:1\nproxy_connect_header: {X: [s3cret]}":                             "http.yml:2: proxy_connect_header.X[0]",
		"\noauth2: {client_id: c, token_url: 'https://u:s3cret@h'}":                                  "http.yml:2: oauth2.token_url",
		"\noauth2: {client_id: c, token_url: 'https://h/?client_secret=s3cret'}":                     "http.yml:2: oauth2.token_url",
		"oauth2:\n  client_id: c\n  token_url: https://h\n  endpoint_params:\n    password: s3cret":  "http.yml:5: oauth2.endpoint_params.password",
		"oauth2:\n  client_id: c\n  token_url: https://h\n  tls_config: {cert_file: c, key: s3cret}": "use key_file",
		"oauth2:\n  client_id: c\n  token_url: https://h\n  client_certificate_key: s3cret":          "use client_certificate_key_file",
		"http_headers:\n  X-Tenant: {secrets: [s3cret]}":                                             "http.yml:2: http_headers.X-Tenant.secrets[0]: secrets come from files: use files",
		"http_headers:\n  X-Api-Key: {values: [s3cret]}":                                             "http.yml:2: http_headers.X-Api-Key.values: secrets come from files: use files",
		"basic_auth: {username: u, password_ref: s3cret}":                                            "use password_file",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load("flag", file); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, address := range []string{"http://u:s3cret@h:1", "u:s3cret@h", "http://u:s3cret@h:port"} {
		if _, err := Address("exporter", address, "exporter.http-config"); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
}

// TestHeaders checks that every header in Prometheus' configuration arrives, from its file if it is a secret.
func TestHeaders(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"key":      "s3cret\n",
		"http.yml": "http_headers: {X-Tenant: {values: [a]}, X-Api-Key: {files: [key]}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := Load("flag", filepath.Join(dir, "http.yml"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := New("", cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if got.Get("X-Tenant") != "a" || got.Get("X-Api-Key") != "s3cret" {
		t.Errorf("%v", got)
	}
}
