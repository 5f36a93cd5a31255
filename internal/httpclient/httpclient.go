// Package httpclient makes HTTP clients from Prometheus' own client configuration. Secrets must come from files.
package httpclient

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/internal/configfile"
)

// New returns a client for a configuration. Its errors are configfile.Errors. path is the configuration's path in the
// file.
func New(path string, cfg config.HTTPClientConfig) (*http.Client, error) {
	if err := refuse(path, reflect.ValueOf(cfg), noFile); err != nil {
		return nil, err
	}
	if cfg.OAuth2 != nil { // the client changes it
		own := *cfg.OAuth2
		cfg.OAuth2 = &own
	}
	client, err := config.NewClientFromConfig(cfg, "llm-node-exporter")
	if err != nil {
		return nil, configfile.Errorf(path, "%w", err)
	}
	return client, nil
}

// To returns the client for one server, and the parts of the server's address. If transport is not nil, it replaces the
// network. The client follows redirects within the server, because Starlette adds a slash. It follows no other
// redirects. A server must not choose where the exporter connects, or make it send credentials without encryption. To's
// errors are configfile.Errors. path is the path of the server's configuration in the file.
func To(path, address string, cfg config.HTTPClientConfig, transport http.RoundTripper) (*http.Client, *url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err == nil && u.User != nil:
		return nil, nil, configfile.Errorf(path+".url", "credentials do not belong in a URL: use http_config.basic_auth with password_file")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "": // the text is left out, because it may contain a password
		return nil, nil, configfile.Errorf(path+".url", "not a URL of the form http://host:port[/path]")
	}
	client, err := New(path+".http_config", cfg)
	if err != nil {
		return nil, nil, err
	}
	if transport != nil {
		client.Transport = transport
	}
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > 3 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return client, u, nil
}

// Load reads the client configuration in the file that a flag names. Paths in the file are relative to the file's
// folder. If file is empty, Load returns Prometheus' defaults. Errors name the flag, the file and the line.
func Load(flag, file string) (cfg config.HTTPClientConfig, err error) {
	if cfg = config.DefaultHTTPClientConfig; file == "" {
		return cfg, nil
	}
	f, err := configfile.Read(file)
	if err == nil {
		err = f.Decode(&cfg)
	}
	if err == nil {
		err = f.At(refuse("", reflect.ValueOf(cfg), noFile))
	}
	if err != nil {
		return config.HTTPClientConfig{}, fmt.Errorf("--%s: %w", flag, err)
	}
	cfg.SetDirectory(filepath.Dir(file))
	return cfg, nil
}

// HasCredentials reports whether a client sends credentials with each request. A hostile server could use such
// credentials elsewhere. A client certificate does not count, because it proves identity without revealing a secret.
func HasCredentials(cfg config.HTTPClientConfig) bool {
	return cfg.BasicAuth != nil || cfg.Authorization != nil || cfg.OAuth2 != nil || cfg.HTTPHeaders != nil || cfg.BearerToken != "" ||
		cfg.BearerTokenFile != ""
}

// WithoutCredentials returns a configuration without its credentials.
func WithoutCredentials(cfg config.HTTPClientConfig) config.HTTPClientConfig {
	cfg.BasicAuth, cfg.Authorization, cfg.OAuth2, cfg.HTTPHeaders, cfg.BearerToken, cfg.BearerTokenFile = nil, nil, nil, nil, "", ""
	return cfg
}

// Address parses the server address that a flag contains. Its errors do not quote the address, because the address may
// contain a password.
func Address(flag, address, remedy string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err == nil && u.User != nil:
		return nil, fmt.Errorf("--%s: credentials do not belong in a URL, which others see among the arguments: write password_file into the "+
			"file of --%s", flag, remedy)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("--%s is not an address: write http://host:port", flag)
	}
	return u, nil
}

// Users choose the names of HTTP headers and of OAuth 2 parameters, so any value may be a secret. secretHeader matches
// headers whose values are likely to be secrets. plain lists parameters whose values are not secrets (RFC 6749, 8693,
// 8707 and additions of Auth0 and Azure).
var (
	secretHeader = regexp.MustCompile(`(?i)auth|cookie|token|key|secret|pass|cred|sign|session|jwt`)
	plain        = []string{
		"audience", "resource", "scope", "grant_type", "response_type", "requested_token_type", "subject_token_type",
		"actor_token_type", "client_assertion_type", "organization", "tenant", "realm", "acr_values",
	}
)

// noFile is the remedy for a secret that Prometheus' configuration cannot read from a file.
const noFile = "none can hold this one, leave it out"

// refuse returns an error if a field contains a secret, because secrets must come from files. remedy names the field
// that takes a file instead.
func refuse(path string, v reflect.Value, remedy string) error {
	switch x := v.Interface().(type) {
	case config.Secret:
		if x != "" {
			return secret(path, remedy)
		}
		return nil
	case config.URL:
		if x.URL != nil && *x.URL != (url.URL{}) && (x.User != nil || x.RawQuery != "" || x.Host == "") {
			return secret(path, "write http://host:port, without user, password and query")
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return refuse(path, v.Elem(), remedy)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := refuse(fmt.Sprintf("%s[%d]", path, i), v.Index(i), remedy); err != nil {
				return err
			}
		}
	case reflect.Map:
		return refuseValues(path, v, remedy)
	case reflect.Struct:
		return refuseFields(path, v)
	}
	return nil
}

// refuseValues calls refuse for the values of a map, such as headers by name.
func refuseValues(path string, v reflect.Value, remedy string) error {
	for _, key := range v.MapKeys() {
		at := path + "." + key.String()
		if h, ok := reflect.TypeAssert[config.Header](v.MapIndex(key)); ok && len(h.Values) > 0 && secretHeader.MatchString(key.String()) {
			return secret(at+".values", "use files")
		}
		if err := refuse(at, v.MapIndex(key), remedy); err != nil {
			return err
		}
	}
	return nil
}

// refuseFields calls refuse for the fields of a struct.
func refuseFields(path string, v reflect.Value) error {
	names := map[string]bool{}
	for i := range v.NumField() {
		name, _ := configfile.Name(v.Type().Field(i))
		names[name] = true
	}
	for i := range v.NumField() {
		name, inline := configfile.Name(v.Type().Field(i))
		at, remedy := strings.TrimPrefix(path+"."+name, "."), noFile
		switch field := v.Field(i); {
		case !v.Type().Field(i).IsExported() || field.IsZero():
			continue
		case inline:
			at = path
		case names[name+"_file"]:
			remedy = "use " + name + "_file"
		case names["files"]:
			remedy = "use files"
		case strings.HasSuffix(name, "_ref"):
			return configfile.Errorf(at, "refers to a secret manager, which the exporter does not support: use %s_file",
				strings.TrimSuffix(name, "_ref"))
		case name == "token_url":
			if u, err := url.Parse(field.String()); err != nil || u.User != nil || u.RawQuery != "" {
				return secret(at, "write https://host/path alone, and client_id and client_secret_file")
			}
		case name == "endpoint_params":
			for _, key := range field.MapKeys() {
				if !slices.Contains(plain, key.String()) {
					return secret(at+"."+key.String(), "use client_secret_file; only these parameters are known to be no secret: "+
						strings.Join(plain, ", "))
				}
			}
		}
		if err := refuse(at, v.Field(i), remedy); err != nil {
			return err
		}
	}
	return nil
}

func secret(path, remedy string) error {
	return configfile.Errorf(path, "secrets come from files: %s", remedy)
}
