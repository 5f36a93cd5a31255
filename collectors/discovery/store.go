package discovery

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// store keeps the objects of one kind, reduced to what T has of them. It implements cache.ReflectorStore.
type store[T any] struct {
	log     *slog.Logger
	changed func() // called after each change

	mu      sync.Mutex
	objects map[string]*T // by namespace and name
}

func newStore[T any](log *slog.Logger) *store[T] {
	return &store[T]{log: log, changed: func() {}, objects: map[string]*T{}}
}

// decode reads an object as the API server sends it.
func decode[T any](object map[string]any) (*T, error) {
	one := new(T)
	return one, runtime.DefaultUnstructuredConverter.FromUnstructured(object, one)
}

// all are the objects, in no order.
func (s *store[T]) all() []*T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objects))
}

// change makes the objects those that apply leaves.
func (s *store[T]) change(apply func(objects map[string]*T)) error {
	s.mu.Lock()
	apply(s.objects)
	s.mu.Unlock()
	s.changed()
	return nil
}

// put decodes an object into a map of them.
func (s *store[T]) put(into map[string]*T, object any) {
	u := object.(*unstructured.Unstructured) // the client that was asked for
	one, err := decode[T](u.Object)
	if err != nil {
		s.log.Warn("the API server sent an object that cannot be read: it is left out", "kind", u.GetKind(), "name", key(object), "err", err)
		return
	}
	into[key(object)] = one
}

func key(object any) string {
	u := object.(*unstructured.Unstructured)
	return u.GetNamespace() + "/" + u.GetName()
}

// Add is a new object.
func (s *store[T]) Add(object any) error {
	return s.change(func(objects map[string]*T) { s.put(objects, object) })
}

// Update is an object that changed.
func (s *store[T]) Update(object any) error { return s.Add(object) }

// Delete is an object that is gone.
func (s *store[T]) Delete(object any) error {
	return s.change(func(objects map[string]*T) { delete(objects, key(object)) })
}

// Replace is the list of all objects.
func (s *store[T]) Replace(list []any, _ string) error {
	return s.change(func(objects map[string]*T) {
		clear(objects)
		for _, object := range list {
			s.put(objects, object)
		}
	})
}

// Resync has nothing to do.
func (s *store[T]) Resync() error { return nil }
