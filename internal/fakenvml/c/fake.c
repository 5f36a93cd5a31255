// A libnvidia-ml.so.1 without a GPU. It says what the file "state" beside it says, which may change
// at any time. What the file does not mention is not supported. See state.go for the keys.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nvml.h"

#define GPUS 64
#define SLOTS 9 // slot 0 is the GPU, the others are its MIG devices

struct entry {
	char *key, *value;
};

struct nvmlDevice_st {
	struct entry *entries;
	int count, capacity;
};

struct nvmlEventSet_st {
	int gpu;
	int seen;
};

struct nvmlGpmSample_st {
	int gpu, instance;
	long long taken; // in ms
};

static struct nvmlDevice_st devices[GPUS][SLOTS];
static struct nvmlDevice_st defaults, library; // "*" and "-"
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t reload_lock = PTHREAD_MUTEX_INITIALIZER;
static char directory[4096];
static int initialised;

// ---- the state file

static void put(struct nvmlDevice_st *d, const char *key, const char *value) {
	for (int i = 0; i < d->count; i++) {
		if (strcmp(d->entries[i].key, key) == 0) {
			free(d->entries[i].value);
			d->entries[i].value = strdup(value);
			return;
		}
	}
	if (d->count == d->capacity) {
		d->capacity = d->capacity ? 2 * d->capacity : 32;
		d->entries = realloc(d->entries, d->capacity * sizeof *d->entries);
	}
	d->entries[d->count++] = (struct entry){strdup(key), strdup(value)};
}

static void empty(struct nvmlDevice_st *d) {
	for (int i = 0; i < d->count; i++) {
		free(d->entries[i].key);
		free(d->entries[i].value);
	}
	d->count = 0;
}

static int by_key(const void *a, const void *b) {
	return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

static void sort(struct nvmlDevice_st *d) { qsort(d->entries, d->count, sizeof *d->entries, by_key); }

static void each(void (*f)(struct nvmlDevice_st *)) {
	f(&defaults);
	f(&library);
	for (int i = 0; i < GPUS * SLOTS; i++)
		f(&devices[0][0] + i);
}

// refresh reads the state file again if it was replaced.
static void refresh(void) {
	static struct timespec known;
	static ino_t known_inode;
	char path[4200], line[4096], device[32], key[128], value[3800];
	struct stat st;

	pthread_mutex_lock(&reload_lock);
	if (!directory[0]) {
		Dl_info info;
		dladdr((void *)refresh, &info);
		snprintf(directory, sizeof directory, "%s", info.dli_fname);
		char *slash = strrchr(directory, '/');
		if (slash)
			*slash = 0;
	}
	snprintf(path, sizeof path, "%s/state", directory);
	FILE *f;
	if (stat(path, &st) != 0 || (st.st_ino == known_inode && st.st_mtim.tv_sec == known.tv_sec &&
	                             st.st_mtim.tv_nsec == known.tv_nsec) || !(f = fopen(path, "re"))) {
		pthread_mutex_unlock(&reload_lock);
		return;
	}
	known = st.st_mtim;
	known_inode = st.st_ino;
	pthread_rwlock_wrlock(&lock);
	each(empty);
	while (fgets(line, sizeof line, f)) {
		unsigned gpu, slot = 0;
		value[0] = 0;
		if (line[0] == '#' || sscanf(line, "%31s %127s %3799[^\n]", device, key, value) < 2)
			continue;
		if (device[0] == '*')
			put(&defaults, key, value);
		else if (device[0] == '-')
			put(&library, key, value);
		else if (sscanf(device, "%u/%u", &gpu, &slot) >= 1 && gpu < GPUS && slot < SLOTS)
			put(&devices[gpu][slot], key, value);
	}
	each(sort);
	pthread_rwlock_unlock(&lock);
	fclose(f);
	pthread_mutex_unlock(&reload_lock);
}

// find copies the value of a key. "!15" is return code 15; # in a string is the index of the GPU.
static nvmlReturn_t find(struct nvmlDevice_st *d, const char *key, char *out, size_t size) {
	struct entry want = {(char *)key, NULL}, *found = NULL;
	int at = d - &devices[0][0], in_table = d != &library;
	nvmlReturn_t ret = NVML_ERROR_NOT_SUPPORTED;

	pthread_rwlock_rdlock(&lock);
	if (d->count)
		found = bsearch(&want, d->entries, d->count, sizeof want, by_key);
	if (!found && in_table && at % SLOTS == 0 && defaults.count)
		found = bsearch(&want, defaults.entries, defaults.count, sizeof want, by_key);
	if (found && found->value[0] == '!') {
		ret = atoi(found->value + 1);
	} else if (found) {
		const char *hash = strchr(found->value, '#');
		if (hash && in_table)
			snprintf(out, size, "%.*s%d%s", (int)(hash - found->value), found->value, at / SLOTS, hash + 1);
		else
			snprintf(out, size, "%s", found->value);
		ret = NVML_SUCCESS;
	}
	pthread_rwlock_unlock(&lock);
	return ret;
}

static long long now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

// record appends a line to the file "calls".
static void record(const char *line) {
	char path[4200];
	snprintf(path, sizeof path, "%s/calls", directory);
	FILE *f = fopen(path, "ae");
	if (f) {
		fprintf(f, "%s\n", line);
		fclose(f);
	}
}

// enter is the beginning of every call: it records the call, once or as often as told, then hangs or fails as told. A
// call that hangs returns when its time is over or when the state no longer says so.
static nvmlReturn_t enter(struct nvmlDevice_st *d, const char *function, int *recorded) {
	char v[4096], name[128];
	int ms;
	refresh();
	if (!__atomic_exchange_n(recorded, 1, __ATOMIC_SEQ_CST) || find(&library, "record_all", v, sizeof v) == NVML_SUCCESS)
		record(function);
	long long began = now_ms();
	while (find(d, "hang", v, sizeof v) == NVML_SUCCESS && sscanf(v, "%127s %d", name, &ms) == 2 &&
	       (name[0] == '*' || strcmp(name, function) == 0) && now_ms() - began < ms) {
		usleep(5000);
		refresh();
	}
	if (d != &library && !__atomic_load_n(&initialised, __ATOMIC_SEQ_CST))
		return NVML_ERROR_UNINITIALIZED;
	if (find(d, "lost", v, sizeof v) == NVML_SUCCESS)
		return atoi(v);
	return NVML_SUCCESS;
}

#define ENTER(d)                                         \
	static int recorded;                             \
	nvmlReturn_t ret = enter(d, __func__, &recorded); \
	char v[4096];                                    \
	(void)v;                                         \
	if (ret != NVML_SUCCESS)                         \
		return ret

#define FIND(d, key)                                     \
	do {                                             \
		ret = find(d, key, v, sizeof v);         \
		if (ret != NVML_SUCCESS)                 \
			return ret;                      \
	} while (0)

// NUMBER defines a call with one number as its result, TEXT one with a string.
#define NUMBER(name, type, key)                                   \
	nvmlReturn_t name(nvmlDevice_t device, type *out) {       \
		ENTER(device.handle);                             \
		FIND(device.handle, key);                         \
		*out = (type)strtoull(v, NULL, 0);                \
		return NVML_SUCCESS;                              \
	}
#define TEXT(name, key)                                                        \
	nvmlReturn_t name(nvmlDevice_t device, char *out, unsigned int size) { \
		ENTER(device.handle);                                          \
		FIND(device.handle, key);                                      \
		snprintf(out, size, "%s", v);                                  \
		return NVML_SUCCESS;                                           \
	}
#define SYSTEM_TEXT(name, key)                            \
	nvmlReturn_t name(char *out, unsigned int size) { \
		ENTER(&library);                          \
		FIND(&library, key);                      \
		snprintf(out, size, "%s", v);             \
		return NVML_SUCCESS;                      \
	}

// part is the n-th number of a value, 0 when there are fewer.
static long long part(const char *v, int n) {
	char *end;
	long long x = 0;
	for (int i = 0; i <= n; i++) {
		x = (long long)strtoull(v, &end, 0);
		if (end == v)
			return 0;
		v = end;
	}
	return x;
}

// ---- the library

nvmlReturn_t nvmlInit_v2(void) {
	ENTER(&library);
	ret = find(&library, "init", v, sizeof v);
	if (ret != NVML_SUCCESS && ret != NVML_ERROR_NOT_SUPPORTED)
		return ret;
	__atomic_store_n(&initialised, 1, __ATOMIC_SEQ_CST);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }

nvmlReturn_t nvmlShutdown(void) {
	ENTER(&library);
	__atomic_store_n(&initialised, 0, __ATOMIC_SEQ_CST);
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) { return "an error of the fake library"; }

SYSTEM_TEXT(nvmlSystemGetDriverVersion, "driver_version")
SYSTEM_TEXT(nvmlSystemGetNVMLVersion, "nvml_version")

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
	ENTER(&library);
	FIND(&library, "cuda_version");
	*version = atoi(v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
	ENTER(&library);
	FIND(&library, "gpus");
	*count = atoi(v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
	if (index >= GPUS)
		return NVML_ERROR_INVALID_ARGUMENT;
	ENTER(&devices[index][0]);
	device->handle = &devices[index][0];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

// ---- identity

TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetMinorNumber, unsigned int, "minor")
NUMBER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, "architecture")

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
	ENTER(device.handle);
	FIND(device.handle, "pci");
	memset(pci, 0, sizeof *pci);
	snprintf(pci->busId, sizeof pci->busId, "%.31s", v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
	ENTER(device.handle);
	FIND(device.handle, "compute_capability");
	*major = part(v, 0);
	*minor = part(v, 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
	ENTER(device.handle);
	FIND(device.handle, "gsp_firmware");
	snprintf(out, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE, "%s", v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled, unsigned int *by_default) {
	ENTER(device.handle);
	FIND(device.handle, "gsp_mode");
	*enabled = part(v, 0);
	*by_default = part(v, 1);
	return NVML_SUCCESS;
}

NUMBER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, "virtualization")

// "licence state product": one feature, licensed or not
nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out) {
	ENTER(device.handle);
	FIND(device.handle, "licence");
	memset(out, 0, sizeof *out);
	out->isGridLicenseSupported = out->licensableFeaturesCount = 1;
	out->gridLicensableFeatures[0].featureCode = NVML_GRID_LICENSE_FEATURE_CODE_COMPUTE;
	out->gridLicensableFeatures[0].featureState = part(v, 0);
	return NVML_SUCCESS;
}

// "platform serial slot tray host peer module"
nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *p) {
	char serial[sizeof p->chassisSerialNumber + 1];
	ENTER(device.handle);
	if (p->version != nvmlPlatformInfo_v1 && p->version != nvmlPlatformInfo_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	FIND(device.handle, "platform");
	memset(serial, 0, sizeof serial);
	if (sscanf(v, "%16s %hhu %hhu %hhu %hhu %hhu", serial, &p->slotNumber, &p->trayIndex, &p->hostId, &p->peerType, &p->moduleId) != 6)
		return NVML_ERROR_UNKNOWN;
	memcpy(p->chassisSerialNumber, serial, sizeof p->chassisSerialNumber);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t *mode) {
	ENTER(device.handle);
	FIND(device.handle, "c2c_mode");
	mode->isC2cEnabled = atoi(v);
	return NVML_SUCCESS;
}

// ---- clocks, power, temperature

static const char *clock_names[] = {"graphics", "sm", "memory", "video"};

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
	char key[64];
	ENTER(device.handle);
	snprintf(key, sizeof key, "clock.%s", clock_names[type & 3]);
	FIND(device.handle, key);
	*mhz = atoi(v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
	char key[64];
	ENTER(device.handle);
	snprintf(key, sizeof key, "clock_max.%s", clock_names[type & 3]);
	FIND(device.handle, key);
	*mhz = atoi(v);
	return NVML_SUCCESS;
}

NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "clock_events")
NUMBER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, "clock_events_supported")
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "clock_events")
NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, "clock_events_supported")
NUMBER(nvmlDeviceGetPerformanceState, nvmlPstates_t, "pstate")
NUMBER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, "persistence_mode")
NUMBER(nvmlDeviceGetPowerUsage, unsigned int, "power")
NUMBER(nvmlDeviceGetNumFans, unsigned int, "fans")
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned int, "bus_width")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, "pcie.generation")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, "pcie.max_generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, "pcie.width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, "pcie.max_width")

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *t) {
	ENTER(device.handle);
	if (t->version != nvmlTemperature_v1 || t->sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	FIND(device.handle, "temperature");
	t->temperature = atoi(v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) {
	ENTER(device.handle);
	if (sensor != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	FIND(device.handle, "temperature");
	*celsius = atoi(v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type, unsigned int *celsius) {
	char key[64];
	ENTER(device.handle);
	snprintf(key, sizeof key, "temperature_threshold.%d", (int)type);
	FIND(device.handle, key);
	*celsius = atoi(v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *m) {
	ENTER(device.handle);
	if (m->version != nvmlMarginTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	FIND(device.handle, "temperature_margin");
	m->marginTemperature = atoi(v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *percent) {
	char key[64];
	ENTER(device.handle);
	snprintf(key, sizeof key, "fan.%u", fan);
	FIND(device.handle, key);
	*percent = atoi(v);
	return NVML_SUCCESS;
}

// ---- fields: "field.82 61", "field.165.3 1", with a type other than the usual one "field.197 u32 7"; "rate 1000" grows
// by 1000 a second, "u32 rate 1000" also wraps

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
	ENTER(device.handle);
	int good = 0;
	// "leaves_out.170 187 188": in a batch in which it refuses field 170, the driver leaves out 187 and 188.
	char left_out[4096] = " ";
	for (int i = 0; i < count; i++) {
		char key[64];
		snprintf(key, sizeof key, "leaves_out.%u", values[i].fieldId);
		if (find(device.handle, key, v, sizeof v) == NVML_SUCCESS)
			snprintf(left_out, sizeof left_out, " %.4000s ", v);
	}
	for (int i = 0; i < count; i++) {
		nvmlFieldValue_t *f = &values[i];
		char key[64];
		snprintf(key, sizeof key, " %u ", f->fieldId);
		if (count > 1 && strstr(left_out, key)) {
			good++;
			continue;
		}
		snprintf(key, sizeof key, f->scopeId ? "field.%u.%u" : "field.%u", f->fieldId, f->scopeId);
		if (find(&library, "record_all", v, sizeof v) == NVML_SUCCESS)
			record(key);
		f->nvmlReturn = find(device.handle, key, v, sizeof v);
		char latency[64], us[64];
		snprintf(latency, sizeof latency, "latency.%u", f->fieldId);
		f->latencyUsec = find(device.handle, latency, us, sizeof us) == NVML_SUCCESS ? atoi(us) : 0;
		if (f->nvmlReturn != NVML_SUCCESS)
			continue;
		good++;
		if (strncmp(v, "u32 rate ", 9) == 0) {
			f->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
			f->value.uiVal = (unsigned)(strtoull(v + 9, NULL, 0) / 1000 * now_ms());
		} else if (strncmp(v, "rate ", 5) == 0) {
			f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
			f->value.ullVal = strtoull(v + 5, NULL, 0) * now_ms() / 1000;
		} else if (strncmp(v, "u32 ", 4) == 0) {
			f->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
			f->value.uiVal = (unsigned)strtoull(v + 4, NULL, 0);
		} else if (v[0] == '-') {
			f->valueType = NVML_VALUE_TYPE_SIGNED_INT;
			f->value.siVal = atoi(v);
		} else if (strchr(v, '.')) {
			f->valueType = NVML_VALUE_TYPE_DOUBLE;
			f->value.dVal = strtod(v, NULL);
		} else {
			f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
			f->value.ullVal = strtoull(v, NULL, 0);
		}
	}
	return good || !count ? NVML_SUCCESS : values[0].nvmlReturn;
}

// ---- utilisation and memory

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *u) {
	ENTER(device.handle);
	FIND(device.handle, "utilization");
	u->gpu = part(v, 0);
	u->memory = part(v, 1);
	return NVML_SUCCESS;
}

// "memory total used reserved"
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *m) {
	ENTER(device.handle);
	if (m->version != nvmlMemory_v2 || find(device.handle, "memory_v1_only", v, sizeof v) == NVML_SUCCESS)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	FIND(device.handle, "memory");
	m->total = part(v, 0);
	m->used = part(v, 1);
	m->reserved = part(v, 2);
	m->free = m->total - m->used - m->reserved;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *m) {
	ENTER(device.handle);
	FIND(device.handle, "memory");
	m->total = part(v, 0);
	m->used = part(v, 1) + part(v, 2);
	m->free = m->total - m->used;
	return NVML_SUCCESS;
}

#define MEDIA(name, key)                                                                          \
	nvmlReturn_t name(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us) { \
		ENTER(device.handle);                                                            \
		FIND(device.handle, key);                                                        \
		*percent = atoi(v);                                                              \
		*period_us = 167000;                                                             \
		return NVML_SUCCESS;                                                             \
	}

MEDIA(nvmlDeviceGetEncoderUtilization, "encoder")
MEDIA(nvmlDeviceGetDecoderUtilization, "decoder")
MEDIA(nvmlDeviceGetJpgUtilization, "jpeg")
MEDIA(nvmlDeviceGetOfaUtilization, "ofa")

// "bar1 total used"
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *m) {
	ENTER(device.handle);
	FIND(device.handle, "bar1");
	m->bar1Total = part(v, 0);
	m->bar1Used = part(v, 1);
	m->bar1Free = m->bar1Total - m->bar1Used;
	return NVML_SUCCESS;
}

// ---- health

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                             nvmlMemoryLocation_t location, unsigned long long *count) {
	char key[64];
	ENTER(device.handle);
	snprintf(key, sizeof key, "ecc.%d.%d.%d", (int)location, (int)type, (int)counter);
	FIND(device.handle, key);
	*count = strtoull(v, NULL, 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status) {
	ENTER(device.handle);
	if (status->version != nvmlEccSramErrorStatus_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	FIND(device.handle, "sram_threshold");
	status->bThresholdExceeded = atoi(v);
	// parity and SEC-DED since the driver was loaded, over the life of the board, then by unit
	if (find(device.handle, "sram_errors", v, sizeof v) == NVML_SUCCESS) {
		status->volatileUncParity = part(v, 0);
		status->volatileUncSecDed = part(v, 1);
		status->aggregateUncParity = part(v, 2);
		status->aggregateUncSecDed = part(v, 3);
		status->aggregateUncBucketL2 = part(v, 4);
		status->aggregateUncBucketSm = part(v, 5);
		status->aggregateUncBucketPcie = part(v, 6);
		status->aggregateUncBucketMcu = part(v, 7);
		status->aggregateUncBucketOther = part(v, 8);
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *h) {
	ENTER(device.handle);
	FIND(device.handle, "row_remap_banks");
	h->max = part(v, 0);
	h->high = part(v, 1);
	h->partial = part(v, 2);
	h->low = part(v, 3);
	h->none = part(v, 4);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *r) {
	ENTER(device.handle);
	if (r->version != nvmlRepairStatus_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	FIND(device.handle, "repair");
	r->bChannelRepairPending = part(v, 0);
	r->bTpcRepairPending = part(v, 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device, nvmlUnrepairableMemoryStatus_v1_t *s) {
	ENTER(device.handle);
	FIND(device.handle, "unrepairable");
	s->bUnrepairableMemory = atoi(v);
	return NVML_SUCCESS;
}

// "fabric state mask summary"
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
	ENTER(device.handle);
	FIND(device.handle, "fabric");
	if (info->version == nvmlGpuFabricInfo_v2) {
		nvmlGpuFabricInfo_v2_t *old = (nvmlGpuFabricInfo_v2_t *)info;
		old->state = part(v, 0);
		old->healthMask = part(v, 1);
		return NVML_SUCCESS;
	}
	if (info->version != nvmlGpuFabricInfo_v3 || find(device.handle, "fabric_v2_only", v, sizeof v) == NVML_SUCCESS)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	info->state = part(v, 0);
	info->healthMask = part(v, 1);
	info->healthSummary = part(v, 2);
	if (find(device.handle, "fabric_clique", v, sizeof v) == NVML_SUCCESS)
		info->cliqueId = atoi(v);
	if (find(device.handle, "fabric_cluster", v, sizeof v) == NVML_SUCCESS)
		for (int i = 0; i < NVML_GPU_FABRIC_UUID_LEN; i++)
			sscanf(v + 2 * i, "%2hhx", &info->clusterUuid[i]);
	return NVML_SUCCESS;
}

// ---- the far end of an NVLink: "nvlink_remote.3 00000000:20:00.0", "nvlink_remote_type.3 2" (a switch)

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
	char key[64];
	ENTER(device.handle);
	snprintf(key, sizeof key, "nvlink_remote.%u", link);
	FIND(device.handle, key);
	memset(pci, 0, sizeof *pci);
	snprintf(pci->busId, sizeof pci->busId, "%.31s", v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type) {
	char key[64];
	ENTER(device.handle);
	snprintf(key, sizeof key, "nvlink_remote_type.%u", link);
	FIND(device.handle, key);
	*type = atoi(v);
	return NVML_SUCCESS;
}

// ---- MIG

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
	ENTER(device.handle);
	FIND(device.handle, "mig");
	*current = part(v, 0);
	*pending = part(v, 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
	ENTER(device.handle);
	*count = SLOTS - 2;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
	ENTER(device.handle);
	if (find(device.handle + 1 + index, "uuid", v, sizeof v) != NVML_SUCCESS)
		return NVML_ERROR_NOT_FOUND;
	mig->handle = device.handle + 1 + index;
	return NVML_SUCCESS;
}

NUMBER(nvmlDeviceGetGpuInstanceId, unsigned int, "gpu_instance")
NUMBER(nvmlDeviceGetComputeInstanceId, unsigned int, "compute_instance")

// ---- processes: "processes pid:memory:instance pid:memory:instance …", -1 for unknown

static nvmlReturn_t list(const char *v, unsigned int *count, nvmlProcessInfo_t *infos) {
	unsigned int room = *count;
	long long pid, memory, instance;
	int length;
	*count = 0;
	for (; sscanf(v, " %lld:%lld:%lld%n", &pid, &memory, &instance, &length) == 3; v += length) {
		if (*count < room)
			infos[*count] = (nvmlProcessInfo_t){pid, memory, instance, instance};
		++*count;
	}
	return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
	ENTER(device.handle);
	FIND(device.handle, "processes");
	return list(v, count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
	ENTER(device.handle);
	FIND(device.handle, "mps_processes");
	return list(v, count, infos);
}

// ---- "process_utilization pid:stamp:sm:memory …", stamps in microseconds, 0 for now. "process_starting 1": one more process
// has samples when they are read than when they were counted.

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
                                             unsigned long long since) {
	unsigned int room = samples ? *count : 0, pid, sm, memory;
	unsigned long long stamp;
	int length;
	ENTER(device.handle);
	char starting[16];
	int late = find(device.handle, "process_starting", starting, sizeof starting) == NVML_SUCCESS;
	FIND(device.handle, "process_utilization");
	*count = 0;
	for (char *rest = v; sscanf(rest, " %u:%llu:%u:%u%n", &pid, &stamp, &sm, &memory, &length) == 4; rest += length) {
		stamp = stamp ? stamp : now_ms() * 1000ULL;
		if (stamp <= since)
			continue;
		if (*count < room)
			samples[*count] = (nvmlProcessUtilizationSample_t){pid, stamp, sm, memory, 0, 0};
		++*count;
	}
	if (!*count)
		return NVML_ERROR_NOT_FOUND;
	if (!samples && late && *count > 1)
		--*count;
	return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

// ---- GPM: "gpm.10 42.5". Samples that are less than 100 ms apart make no window. "gpm_newest 97": a driver that knows no
// higher ones, and refuses a list that has one.

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
	ENTER(device.handle);
	FIND(device.handle, "gpm");
	support->isSupportedDevice = atoi(v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
	ENTER(&library);
	sample->handle = calloc(1, sizeof *sample->handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
	ENTER(&library);
	free(sample.handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
	ENTER(device.handle);
	*sample.handle = (struct nvmlGpmSample_st){(device.handle - &devices[0][0]) / SLOTS, -1, now_ms()};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample) {
	ENTER(device.handle);
	*sample.handle = (struct nvmlGpmSample_st){(device.handle - &devices[0][0]) / SLOTS, instance, now_ms()};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
	ENTER(&library);
	struct nvmlGpmSample_st *older = get->sample1.handle, *newer = get->sample2.handle;
	if (get->version != NVML_GPM_METRICS_GET_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!older->taken || older->gpu != newer->gpu || older->instance != newer->instance || newer->taken - older->taken < 100)
		return NVML_ERROR_INVALID_ARGUMENT;
	struct nvmlDevice_st *d = &devices[newer->gpu][0];
	for (int slot = 1; newer->instance >= 0 && slot < SLOTS; slot++) {
		if (find(d + slot, "gpu_instance", v, sizeof v) == NVML_SUCCESS && atoi(v) == newer->instance) {
			d += slot;
			break;
		}
	}
	if (find(d, "gpm_newest", v, sizeof v) == NVML_SUCCESS)
		for (unsigned int i = 0; i < get->numMetrics; i++)
			if (get->metrics[i].metricId > (unsigned)atoi(v))
				return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < get->numMetrics; i++) {
		char key[64];
		snprintf(key, sizeof key, "gpm.%u", get->metrics[i].metricId);
		if (find(&library, "record_all", v, sizeof v) == NVML_SUCCESS)
			record(key);
		get->metrics[i].nvmlReturn = find(d, key, v, sizeof v);
		get->metrics[i].value = get->metrics[i].nvmlReturn == NVML_SUCCESS ? strtod(v, NULL) : 0;
	}
	return NVML_SUCCESS;
}

// ---- events: "event.1 79", "event.2 31 3" (of GPU instance 3), …; "event_storm 31" without end

NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long, "event_types")

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
	ENTER(&library);
	set->handle = calloc(1, sizeof *set->handle);
	set->handle->gpu = -1;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	ENTER(&library);
	free(set.handle);
	return NVML_SUCCESS;
}

static nvmlReturn_t next_event(struct nvmlDevice_st *d, int seen, char *v, size_t size) {
	char key[64];
	snprintf(key, sizeof key, "event.%d", seen + 1);
	return find(d, key, v, size);
}

// Events from before the registration are not told.
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
	ENTER(device.handle);
	set.handle->gpu = (device.handle - &devices[0][0]) / SLOTS;
	while (next_event(device.handle, set.handle->seen, v, sizeof v) == NVML_SUCCESS)
		set.handle->seen++;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout) {
	if (set.handle->gpu < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	struct nvmlDevice_st *d = &devices[set.handle->gpu][0];
	long long began = now_ms();
	ENTER(d);
	for (;;) {
		if (next_event(d, set.handle->seen, v, sizeof v) == NVML_SUCCESS) {
			set.handle->seen++;
			break;
		}
		if (find(d, "event_storm", v, sizeof v) == NVML_SUCCESS)
			break;
		if (now_ms() - began >= timeout)
			return NVML_ERROR_TIMEOUT;
		usleep(500);
		refresh();
	}
	memset(data, 0, sizeof *data);
	data->device.handle = d;
	data->eventType = nvmlEventTypeXidCriticalError;
	data->eventData = atoi(v);
	data->gpuInstanceId = data->computeInstanceId = 0xFFFFFFFF;
	if (strchr(v, ' '))
		data->gpuInstanceId = part(v, 1);
	return NVML_SUCCESS;
}
